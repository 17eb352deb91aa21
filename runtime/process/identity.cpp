#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/StringUtil.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <lockstep/runtime/process/impl/identity.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::detail {

int visible_devices() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    return 0;
  }
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
}

namespace {

/// Whether this process may use the GPU of this file: a job's control group forbids others.
bool is_permitted(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const bool permitted = file >= 0 || errno != EPERM;
  if (file >= 0) {
    close(file);
  }
  return permitted;
}

/// Errors that a driver reports only where it has found a GPU.
bool tells_of_a_gpu(int error) {
  return error == 46 || (error >= 800 && error < 900);
}

struct Architecture {
  int major;
  int minor;
  char suffix;  // a: this device alone; f: its family; else '\0'
};
/// Those after each `key`.
std::vector<Architecture> architectures(const std::string& flags, const std::string& key) {
  std::vector<Architecture> found;
  for (size_t at = flags.find(key); at != std::string::npos; at = flags.find(key, at + 1)) {
    char* end = nullptr;
    const long number = std::strtol(flags.c_str() + at + key.size(), &end, 10);
    const char suffix = *end == 'a' || *end == 'f' ? *end : '\0';
    found.push_back({static_cast<int>(number / 10), static_cast<int>(number % 10), suffix});
  }
  return found;
}

}  // namespace

int gpus_present(const std::string& devices, const CudaDriver& driver) {
  constexpr std::string_view own = "nvidia";
  constexpr int no_device = 100;
  if (driver.devices > 0) {
    return driver.devices;
  }
  int count = 0;
  bool in_windows = false;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(devices.c_str()), &closedir);
  while (const dirent* entry = folder == nullptr ? nullptr : readdir(folder.get())) {
    const std::string name = entry->d_name;
    const bool numbered = name.size() > own.size() && name.rfind(own, 0) == 0 &&
                          name.find_first_not_of("0123456789", own.size()) == std::string::npos;
    count += numbered && is_permitted(devices + "/" + name) ? 1 : 0;
    in_windows = in_windows || name == "dxg";
  }
  const bool is_certain =
      tells_of_a_gpu(driver.error) || (in_windows && driver.found && driver.error != no_device);
  return count == 0 && is_certain ? 1 : count;
}

int gpus_present() {
  return gpus_present("/dev", driver_versions().answer);
}

DriverVersions driver_versions() {
  using GetVersion = int(int*);
  DriverVersions versions;
  versions.libtorch_has_cuda = c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA);
  const auto get = reinterpret_cast<GetVersion*>(dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion"));
  versions.runtime = get != nullptr && get(&versions.runtime) == 0 ? versions.runtime : 0;
  versions.answer = ask_cuda_driver();
  if (versions.answer.found) {
    versions.driver = versions.answer.version;
  }
  if (const char* list = std::getenv("CUDA_VISIBLE_DEVICES")) {
    versions.list = list;
  }
  return versions;
}

bool wants_no_device(const DriverVersions& versions) {
  const std::string list = versions.list.value_or("0");
  return !versions.libtorch_has_cuda || list.empty() || list.front() == '-' ||
         list.rfind("NoDevFiles", 0) == 0;
}

NoDevice no_device(const DriverVersions& versions) {
  const auto text = [](int version) { return c10::str(version / 1000, ".", version % 1000 / 10); };
  constexpr int no_device = 100;
  const int error = versions.answer.error;
  if (!versions.libtorch_has_cuda) {
    return {"this LibTorch is for CPUs", "install a torch wheel for CUDA"};
  }
  if (!versions.driver.has_value()) {
    return {"there is no libcuda.so.1",
            "install NVIDIA's driver (a container needs --gpus all), or use the CPU"};
  }
  const bool shows_none =
      error == no_device || (versions.answer.found && error == 0 && versions.answer.devices == 0);
  if (versions.list.has_value() && shows_none) {
    return {c10::str("CUDA_VISIBLE_DEVICES=", *versions.list, " leaves none"),
            "unset it, or name GPUs that nvidia-smi -L lists"};
  }
  if (error != 0) {
    return {versions.answer.problem, advice_for_driver(error)};
  }
  if (*versions.driver / 1000 < versions.runtime / 1000) {
    return {c10::str("the driver supports CUDA ", text(*versions.driver),
                     " at most, LibTorch is built for ", text(versions.runtime)),
            "install a newer driver, or a torch wheel for that CUDA"};
  }
  return {
      "the driver shows none",
      "CUDA_VISIBLE_DEVICES hides all, there is no device, or it is lost (nvidia-smi says which)"};
}

std::string why_no_device(const DriverVersions& versions) {
  const NoDevice why = no_device(versions);
  return why.what + ": " + why.fix;
}

std::string why_no_code(int major, int minor, const std::string& flags) {
  const std::vector<Architecture> machine = architectures(flags, "code=sm_");
  std::vector<Architecture> all = architectures(flags, "code=compute_");
  const auto is_exact = [&](const Architecture& code) {
    return code.major == major && code.minor == minor;
  };
  const auto runs = [&](const Architecture& code) {
    return is_exact(code) || (code.suffix != 'a' && code.major == major && code.minor <= minor);
  };
  const auto translates = [&](const Architecture& code) {
    return runs(code) || (code.suffix == '\0' && code.major < major);
  };
  if ((machine.empty() && all.empty()) || std::any_of(machine.begin(), machine.end(), runs) ||
      std::any_of(all.begin(), all.end(), translates)) {
    return {};
  }
  all.insert(all.end(), machine.begin(), machine.end());
  std::string known;
  bool is_old = true;
  for (const Architecture& code : all) {
    known += c10::str(known.empty() ? "" : ", ", code.major, ".", code.minor);
    is_old = is_old && std::pair(major, minor) < std::pair(code.major, code.minor);
  }
  return c10::str("its compute capability is ", major, ".", minor, ", this LibTorch has code for ",
                  known, ": install a torch wheel for ",
                  is_old ? "an older CUDA (12.6 still has code for 7.0)" : "a newer CUDA",
                  " and build lockstep with it, or choose another GPU by CUDA_VISIBLE_DEVICES");
}

std::string why_no_code(int index) {
  const auto device = cuda_device(index);
  return device ? why_no_code(device->major, device->minor, at::detail::getCUDAHooks().showConfig())
                : "";
}

}  // namespace lockstep::detail
