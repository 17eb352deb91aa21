#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <lockstep/collectives/error.h>
#include <lockstep/runtime/process/identity.h>
#include <unistd.h>

namespace lockstep::detail {

int visible_devices() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    return 0;
  }
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
}

int gpus_present(const std::string& devices) {
  int count = 0;
  while (access((devices + "/nvidia" + std::to_string(count)).c_str(), F_OK) == 0) {
    ++count;
  }
  return count;
}

int gpus_present() {
  return gpus_present("/dev");
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
