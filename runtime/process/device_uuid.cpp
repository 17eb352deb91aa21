#include <c10/util/StringUtil.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/cuda_driver.h>
#include <lockstep/runtime/process/impl/identity.h>

#include <fstream>
#include <string>

namespace lockstep::detail {

std::string device_identity(int index) {
  const auto device = cuda_device(index);
  LOCKSTEP_CHECK_CODE(device.has_value(), ExitCode::environment,
                      "the driver does not identify device ", index,
                      ": it is older than CUDA 11.4, or the device is lost (nvidia-smi says more)");
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string system;
  std::getline(file, system);
  return c10::str(device->uuid, "@", device->bus, "/", system);
}

}  // namespace lockstep::detail
