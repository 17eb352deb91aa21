#pragma once

#include <map>
#include <string>

#include "work.h"

/// Faults that the environment plants by their number, and what the report counts.
namespace fake_cuda {

/// What can be made to fail: the n-th of it, counted from 0, with the variable beside it.
enum class Planted {
  kForgottenWait,     // FAKE_CUDA_FORGET_WAIT: a stream does not wait for an event
  kFailedMalloc,      // FAKE_CUDA_FAIL_MALLOC: no memory
  kFailedLaunch,      // FAKE_CUDA_FAIL_LAUNCH: a kernel faults (illegal address) when it runs
  kFailedSync,        // FAKE_CUDA_FAIL_SYNC: a wait of the host finds that a kernel has failed
  kFailedCollective,  // FAKE_CUDA_FAIL_COLLECTIVE: NCCL's error (nccl/)
};

/// Counts one more of the kind; true if it is the one that shall fail. Threads: any.
FAKE_CUDA_EXPORT bool fails_now(Planted kind);

/// Adds to a number of the report, e.g. count("collectives"). Threads: any.
FAKE_CUDA_EXPORT void count(const std::string& what, long more = 1);
/// All numbers so far. Threads: any.
std::map<std::string, long> counts();

}  // namespace fake_cuda
