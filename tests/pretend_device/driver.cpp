#include <lockstep/runtime/process/impl/identity.h>

namespace lockstep::detail {

std::string device_identity(int /*index*/) {
  return "GPU-pretend";
}

}  // namespace lockstep::detail
