#pragma once

#include <cstdint>

namespace lockstep::emulated_cuda {

/// Number of kernels that were launched so far, by all host threads.
int64_t launch_count();

}  // namespace lockstep::emulated_cuda
