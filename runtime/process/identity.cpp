#include <c10/core/impl/VirtualGuardImpl.h>
#include <dirent.h>
#include <dlfcn.h>
#include <lockstep/runtime/process/impl/identity.h>

#include <memory>
#include <string>
#include <string_view>

namespace lockstep::detail {

int visible_devices() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    return 0;
  }
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
}

int gpus_present(const std::string& devices, bool has_driver) {
  constexpr std::string_view own = "nvidia";
  int count = 0;
  bool in_windows = false;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(devices.c_str()), &closedir);
  while (const dirent* entry = folder == nullptr ? nullptr : readdir(folder.get())) {
    const std::string name = entry->d_name;
    const bool numbered = name.size() > own.size() && name.rfind(own, 0) == 0 &&
                          name.find_first_not_of("0123456789", own.size()) == std::string::npos;
    count += numbered ? 1 : 0;
    in_windows = in_windows || name == "dxg";
  }
  return count == 0 && in_windows && has_driver ? 1 : count;
}

int gpus_present() {
  return gpus_present("/dev", driver_versions().driver.has_value());
}

DriverVersions driver_versions() {
  using GetVersion = int(int*);
  const auto version_from = [](void* library, const char* name) {
    const auto get = reinterpret_cast<GetVersion*>(dlsym(library, name));
    int version = 0;
    return get != nullptr && get(&version) == 0 ? version : 0;
  };
  DriverVersions versions;
  versions.libtorch_has_cuda = c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA);
  versions.runtime = version_from(RTLD_DEFAULT, "cudaRuntimeGetVersion");
  if (void* driver = dlopen("libcuda.so.1", RTLD_NOW)) {
    versions.driver = version_from(driver, "cuDriverGetVersion");
    dlclose(driver);
  }
  return versions;
}

std::string why_no_device(const DriverVersions& versions) {
  const auto text = [](int version) { return c10::str(version / 1000, ".", version % 1000 / 10); };
  if (!versions.libtorch_has_cuda) {
    return "this LibTorch is for CPUs: install a torch wheel for CUDA";
  }
  if (!versions.driver.has_value()) {
    return "there is no libcuda.so.1: install NVIDIA's driver, or use the CPU";
  }
  if (*versions.driver / 1000 < versions.runtime / 1000) {
    return c10::str("the driver supports CUDA ", text(*versions.driver),
                    " at most, LibTorch is built for ", text(versions.runtime),
                    ": install a newer driver, or a torch wheel for that CUDA");
  }
  return "the driver shows none: CUDA_VISIBLE_DEVICES hides all, there is no device, or it is lost "
         "(nvidia-smi says which)";
}

}  // namespace lockstep::detail
