#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/amp/cuda/cuda_call.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>

#include <string_view>

namespace lockstep::amp {
namespace {

bool has_no_kernel(std::string_view problem) {
  for (const std::string_view name :
       {"cudaErrorNoKernelImageForDevice", "cudaErrorInvalidDeviceFunction",
        "cudaErrorInvalidKernelImage", "cudaErrorInvalidPtx", "cudaErrorUnsupportedPtxVersion",
        "cudaErrorJitCompilerNotFound", "cudaErrorJitCompilationDisabled",
        "cudaErrorInsufficientDriver"}) {
    if (problem == name) {
      return true;
    }
  }
  return false;
}

ExitCode code_of(std::string_view problem) {
  if (problem.rfind("cudaErrorStreamCapture", 0) == 0) {
    return ExitCode::usage;
  }
  return problem == "cudaErrorMemoryAllocation" ? ExitCode::out_of_memory : ExitCode::peer_lost;
}

}  // namespace

void* current_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStreamNativeHandle(guard.getStream(device));
}

void check_call(const char* problem, const char* kernel) {
  if (problem == nullptr) {
    return;
  }
  LOCKSTEP_CHECK_CODE(!has_no_kernel(problem), ExitCode::environment, kernel,
                      ": CUDA says: ", problem,
                      "; lockstep must be built for this device's architecture "
                      "(LOCKSTEP_CUDA_ARCHITECTURES), and the driver be no older than the toolkit");
  throw Error(c10::str(kernel, ": CUDA says: ", problem), code_of(problem));
}

}  // namespace lockstep::amp
