#pragma once

#include <cuda_runtime_api.h>

#include "../common/work.h"

/// What a call of the API answers.
namespace fake_cuda {

/// Remembers the error as the last one of this thread, and gives it back.
cudaError_t fail(cudaError_t error);
/// As fail(), and says on the standard error why; for what a program should not do at all.
cudaError_t refuse(cudaError_t error, const std::string& why);

/// The error of a kernel or a collective, from which the process does not recover.
cudaError_t sticky_error();
/// The first one stays.
void set_sticky_error(cudaError_t error);
/// The sticky error, or success: what a call answers that has done its part.
cudaError_t answer();
/// As answer(), after a wait of the host, which the environment can make the one that finds that a
/// kernel has failed.
cudaError_t answer_of_wait();

/// Each call that needs a context begins with it: makes the current device's context if this is the
/// first such call, and refuses after a failed cuInit, after fork(), within a host function and
/// after a sticky error.
FAKE_CUDA_EXPORT cudaError_t enter(const char* call);
#define FAKE_CUDA_ENTER()                                                                 \
  if (const cudaError_t refused = ::fake_cuda::enter(__func__); refused != cudaSuccess) { \
    return refused;                                                                       \
  }

/// The driver's name and text of an error; null for a number that is none.
FAKE_CUDA_EXPORT const char* driver_error_name(int error);
FAKE_CUDA_EXPORT const char* error_text(int error);

/// While it lives, this thread runs a function of the program for a stream (cudaLaunchHostFunc),
/// which may not call CUDA.
class HostFunctionScope {
 public:
  HostFunctionScope();
  ~HostFunctionScope();
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;
};

}  // namespace fake_cuda
