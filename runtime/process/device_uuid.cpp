#include <dlfcn.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/process/impl/identity.h>

#include <array>
#include <cstdio>

namespace lockstep::detail {

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

}  // namespace lockstep::detail
