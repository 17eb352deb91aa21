#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/amp/cuda/cuda_call.h>
#include <lockstep/collectives/error.h>

namespace lockstep::amp {

void* current_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStreamNativeHandle(guard.getStream(device));
}

void check_call(const char* problem, const char* kernel) {
  LOCKSTEP_CHECK_CODE(problem == nullptr, ExitCode::environment, kernel, ": CUDA says: ", problem,
                      "; lockstep must be built for this device's architecture "
                      "(LOCKSTEP_CUDA_ARCHITECTURES), and the driver be no older than the toolkit");
}

}  // namespace lockstep::amp
