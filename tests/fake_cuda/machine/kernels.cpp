#include "kernels.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "../memory/host_touches.h"
#include "../memory/memory.h"
#include "launch.h"
#include "machine_code.h"
#include "parser.h"

namespace fake_cuda {
namespace {

// A launch's stack, if the cubin says nothing of it.
constexpr size_t kLocalBytes = 1024;

std::atomic<long> executed = 0;

/// All kernels and variables that the process has used.
class Kernels {
 public:
  static Kernels& instance() {
    static Kernels* kernels = new Kernels;
    return *kernels;
  }
  KernelAttributes attributes_of(const std::string& name);
  const Kernel& kernel(const std::string& name);
  void* variable(const std::string& name, size_t bytes);

 private:
  struct LoadedFile {
    const Cubin* cubin = nullptr;
    Cubin::Places places;     // of its variables
    std::vector<char> bank4;  // addresses of variables and functions
  };
  const LoadedFile& load(const std::string& file);
  void* make_variable(const Cubin::Variable& variable);

  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_;
  std::unordered_map<std::string, LoadedFile> files_;
  std::unordered_map<std::string, void*> variables_;
};

void* Kernels::make_variable(const Cubin::Variable& variable) {
  void* memory = add_variable(std::max<size_t>(variable.bytes, 1));
  std::copy(variable.content.begin(), variable.content.end(), static_cast<char*>(memory));
  return memory;
}

/// Gives the file's variables their memory. Those with a name are one for the program; texts of
/// assertions ("$str") are the file's own.
const Kernels::LoadedFile& Kernels::load(const std::string& file) {
  const auto [place, fresh] = files_.try_emplace(file);
  LoadedFile& loaded = place->second;
  if (!fresh && loaded.cubin != nullptr) {
    return loaded;
  }
  loaded.cubin = &cubin_in(file);
  const DeviceScope scope;  // writes memory of the device
  for (const Cubin::Variable& variable : loaded.cubin->variables()) {
    if (variable.name[0] == '$') {
      loaded.places.push_back(make_variable(variable));
      continue;
    }
    const auto [known, is_new] = variables_.try_emplace(variable.name, nullptr);
    if (is_new) {
      known->second = make_variable(variable);
    }
    loaded.places.push_back(known->second);
  }
  loaded.cubin->write_addresses(loaded.places);
  loaded.bank4 = loaded.cubin->bank4(loaded.places);
  return loaded;
}

KernelAttributes Kernels::attributes_of(const std::string& name) {
  std::lock_guard lock(mutex_);
  return cubin_in(file_of_kernel(name)).kernel(name).attributes;
}

const Kernel& Kernels::kernel(const std::string& name) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Kernel>& kernel = kernels_[name];
  if (kernel == nullptr) {
    const std::string file = file_of_kernel(name);
    const LoadedFile& loaded = load(file);
    auto fresh = std::make_unique<Kernel>();
    fresh->info = loaded.cubin->kernel(name);
    fresh->program = parse_program(name, disassembly_of(name, file, fresh->info.code),
                                   fresh->info.attributes.registers);
    fresh->bank3 = loaded.cubin->bank3();
    fresh->bank4 = loaded.bank4;
    fresh->driver_functions = loaded.cubin->driver_functions();
    for (size_t n = 0; n < loaded.places.size(); ++n) {
      const Cubin::Variable variable = loaded.cubin->variables()[n];
      if (variable.is_constant) {
        fresh->constants.push_back({size_t(variable.offset), variable.bytes, loaded.places[n]});
      }
    }
    fresh->local_bytes = fresh->info.attributes.local_bytes;
    if (fresh->program.uses_local_memory) {
      fresh->local_bytes = std::max(fresh->local_bytes, kLocalBytes);
    }
    kernel = std::move(fresh);
  }
  return *kernel;
}

void* Kernels::variable(const std::string& name, size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto known = variables_.find(name);
  if (known != variables_.end()) {
    return known->second;
  }
  // Its first content is in the file that defines it; nobody lists which one that is.
  for (const std::string& file : files_of_code()) {
    const std::vector<Cubin::Variable> all = cubin_in(file).variables();
    const auto defines = [&](const Cubin::Variable& variable) { return variable.name == name; };
    if (std::any_of(all.begin(), all.end(), defines)) {
      load(file);
      return variables_.at(name);
    }
  }
  return variables_[name] = add_variable(bytes);
}

}  // namespace

KernelAttributes attributes_of(const std::string& kernel) {
  return Kernels::instance().attributes_of(kernel);
}

Work prepare_launch(const std::string& name, dim3 grid, dim3 block, void** parameters,
                    size_t dynamic_shared_bytes) {
  const Kernel& kernel = Kernels::instance().kernel(name);
  const uint64_t threads = uint64_t(block.x) * block.y * block.z;
  if (threads == 0 || threads > 1024 || threads > uint64_t(kernel.info.attributes.max_threads) ||
      uint64_t(grid.x) * grid.y * grid.z == 0) {
    throw DeviceFault(cudaErrorInvalidConfiguration,
                      "a launch of " + std::to_string(threads) + " threads in a block of " + name);
  }
  auto bank0 =
      std::make_shared<const std::vector<char>>(Launch::bank0_of(kernel, grid, block, parameters));
  return [&kernel, grid, block, bank0, dynamic_shared_bytes] {
    Launch launch(kernel, grid, block, *bank0, dynamic_shared_bytes);
    launch.run();
    executed += launch.instructions();
    return true;
  };
}

long instructions_executed() {
  return executed;
}

void* variable_of(const std::string& name, size_t bytes) {
  return Kernels::instance().variable(name, bytes);
}

}  // namespace fake_cuda
