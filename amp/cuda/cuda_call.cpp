#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/amp/cuda/cuda_call.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/cuda_errors.h>

namespace lockstep::amp {

void* current_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStreamNativeHandle(guard.getStream(device));
}

void check_call(const char* problem, const char* kernel) {
  if (problem == nullptr) {
    return;
  }
  const detail::CudaError& error = detail::cuda_error(problem);
  const bool helps = *error.advice != '\0';
  throw Error(c10::str(kernel, ": CUDA says: ", problem, helps ? "; " : "", error.advice),
              error.code);
}

}  // namespace lockstep::amp
