#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <lockstep/collectives/device/identity.h>
#include <lockstep/collectives/error.h>

#include <array>
#include <cstdio>

namespace lockstep {

int visible_devices() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    return 0;
  }
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
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

std::string device_identity(int index) {
  // The driver's interface, which is stable, so that no toolkit is needed to build this.
  using Initialise = int(unsigned);
  using GetDevice = int(int*, int);
  using GetUuid = int(unsigned char*, int);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  LOCKSTEP_CHECK_CODE(driver != nullptr, ExitCode::environment,
                      "there is no libcuda.so.1: install NVIDIA's driver, or use the CPU");
  const auto initialise = reinterpret_cast<Initialise*>(dlsym(driver, "cuInit"));
  const auto get_device = reinterpret_cast<GetDevice*>(dlsym(driver, "cuDeviceGet"));
  const auto get_uuid = reinterpret_cast<GetUuid*>(dlsym(driver, "cuDeviceGetUuid_v2"));
  std::array<unsigned char, 16> uuid{};
  int device = 0;
  const bool known = initialise != nullptr && get_device != nullptr && get_uuid != nullptr &&
                     initialise(0) == 0 && get_device(&device, index) == 0 &&
                     get_uuid(uuid.data(), device) == 0;
  dlclose(driver);
  LOCKSTEP_CHECK_CODE(known, ExitCode::environment, "the driver does not identify device ", index,
                      ": it is older than CUDA 11.4, or the device is lost (nvidia-smi says more)");
  std::string text = "GPU-";
  for (const unsigned char byte : uuid) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

}  // namespace lockstep
