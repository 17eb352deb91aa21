#include <lockstep/collectives/device/identity.h>

namespace lockstep {

std::string device_identity(int /*index*/) {
  return "GPU-pretend";
}

}  // namespace lockstep
