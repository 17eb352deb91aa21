#include "doctor/library_facts.h"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <hwy/targets.h>
#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/collectives/impl/launch_environment.h>
#include <lockstep/collectives/impl/loaded_libraries.h>
#include <lockstep/collectives/impl/mpi_comm.h>
#include <lockstep/collectives/impl/nccl_api.h>
#include <lockstep/runtime/process/impl/environment.h>
#include <lockstep/runtime/process/impl/identity.h>
#include <torch/headeronly/version.h>

#include <chrono>
#include <cmath>
#include <cstring>

#include "doctor/machine_facts.h"

namespace lockstep::doctor {
namespace {

/// The text after `key` in `text`, up to a comma.
std::string value_of(const std::string& text, const std::string& key) {
  const size_t at = text.find(key);
  if (at == std::string::npos) {
    return "";
  }
  const size_t begin = at + key.size();
  return text.substr(begin, text.find_first_of(", \n", begin) - begin);
}

void read_nccl(RankFacts& facts) {
  facts.has_nccl = detail::nccl_available();
  facts.nccl_built = LOCKSTEP_NCCL_BUILT;
  facts.nccl_files = detail::nccl_files(detail::loaded_libraries());
  if (facts.nccl_files.empty()) {
    return;
  }
  if (void* library = dlopen(facts.nccl_files.front().c_str(), RTLD_NOW | RTLD_NOLOAD)) {
    using GetVersion = int(int*);
    if (auto* get = reinterpret_cast<GetVersion*>(dlsym(library, "ncclGetVersion"))) {
      get(&facts.nccl_loaded);
    }
    dlclose(library);
  }
}

/// UUID and bus.
std::string identity_of(int device) {
  const std::string identity = detail::device_identity(device);
  return identity.substr(0, identity.find('/'));
}

/// Active NVLinks of a device; -1 where NVIDIA's library for that is missing.
int nvlinks_of(const std::string& bus) {
  using Initialise = int();
  using ByBus = int(const char*, void**);
  using LinkState = int(void*, unsigned, int*);
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) {
    return -1;
  }
  auto* initialise = reinterpret_cast<Initialise*>(dlsym(library, "nvmlInit_v2"));
  auto* by_bus = reinterpret_cast<ByBus*>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
  auto* link_state = reinterpret_cast<LinkState*>(dlsym(library, "nvmlDeviceGetNvLinkState"));
  void* device = nullptr;
  int count = -1;
  if (initialise != nullptr && by_bus != nullptr && link_state != nullptr && initialise() == 0 &&
      by_bus(bus.c_str(), &device) == 0) {
    count = 0;
    for (unsigned link = 0; link < 18; ++link) {
      int active = 0;
      count += link_state(device, link, &active) == 0 && active != 0 ? 1 : 0;
    }
  }
  dlclose(library);
  return count;
}

void read_devices(RankFacts& facts) {
  for (int index = 0; index < detail::visible_devices(); ++index) {
    DeviceFacts device;
    device.index = index;
    device.uuid = identity_of(index);
    device.no_code = detail::why_no_code(index);
    if (const auto found = detail::cuda_device(index)) {
      device.bus = found->bus;
      device.numa = numa_of_device(device.bus);
      device.nvlinks = nvlinks_of(device.bus);
    }
    facts.devices.push_back(device);
  }
}

/// How far this rank's clock is ahead of rank 0's: the smallest difference after several barriers.
double clock_ahead(const Communicator& control) {
  double ahead = 0.0;
  for (int meeting = 0; meeting < 5; ++meeting) {
    control.barrier().wait();
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    std::string bytes(sizeof now, '\0');
    std::memcpy(bytes.data(), &now, sizeof now);
    double first = 0.0;
    std::memcpy(&first, control.all_gather_bytes(bytes).front().data(), sizeof first);
    ahead = meeting == 0 || std::abs(now - first) < std::abs(ahead) ? now - first : ahead;
  }
  return ahead;
}

}  // namespace

void read_libraries(RankFacts& facts) {
  facts.compiler = LOCKSTEP_DOCTOR_COMPILER;
  const std::string config = at::show_config();
  facts.libtorch_built = TORCH_VERSION;
  facts.libtorch_loaded = value_of(config, "TORCH_VERSION=");
  facts.instructions = at::get_cpu_capability() + ", " +
                       hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets());
  const detail::DriverVersions versions = detail::driver_versions();
  facts.libtorch_has_cuda = versions.libtorch_has_cuda;
  facts.cuda_runtime = versions.runtime;
  facts.cuda_driver = versions.driver.value_or(-1);
  facts.has_kernels = amp::cuda_kernels_available();
  facts.gpus_present = detail::gpus_present();
  const bool wants_cpu =
      detail::wants_no_device(versions) || detail::with_environment({}).device() == DeviceKind::cpu;
  if (facts.gpus_present > 0 && detail::visible_devices() == 0 && !wants_cpu) {
    const detail::NoDevice why = detail::no_device(versions);
    facts.no_device = why.what;
    facts.no_device_fix = why.fix;
  }
  read_devices(facts);
  read_nccl(facts);
  facts.launched = detail::read_launch_environment().world_size;
}

void read_world(RankFacts& facts, const Runtime& runtime) {
  facts.rank = runtime.rank();
  facts.size = runtime.size();
  facts.local_rank = runtime.local_rank();
  facts.local_size = runtime.local_size();
  facts.device = runtime.device().str();
  facts.threads = runtime.threads();
  facts.transport = runtime.communicator().transport_name();
  if (runtime.device().is_cuda()) {
    facts.device_uuid = identity_of(runtime.device().index());
  }
  const detail::MpiFacts mpi = detail::mpi_facts();
  facts.thread_level = mpi.thread_level;
  facts.mpi = mpi.library;
  facts.clock = clock_ahead(runtime.control());
}

}  // namespace lockstep::doctor
