#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/exit_code.h>

#include <string_view>

namespace lockstep::detail {

/// What an error of CUDA's runtime or driver, which share their numbers, means for a run.
struct CudaError {
  int number;
  const char* name;  // of the runtime, as cudaGetErrorName says it
  /// peer_lost: the device is lost, and a new process may have it back; environment: something has
  /// to be put right first; out_of_memory; usage: calls that stay wrong, device-side assertions.
  ExitCode code;
  const char* advice;  // what to do; empty where nvidia-smi and dmesg say more than we can
};

/// Plain C++: needs no CUDA. One that the table does not know has the code usage.
const CudaError& cuda_error(int number);
const CudaError& cuda_error(std::string_view name);

}  // namespace lockstep::detail
