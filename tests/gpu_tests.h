#pragma once

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/amp/impl/cuda_kernels.h>

namespace lockstep::testing {

/// Exit code of a program none of whose tests could run.
constexpr int gpu_tests_skipped = 77;

/// Why no test of this program can run here; null where all can.
inline const char* reason_to_skip() {
  if (!amp::cuda_kernels_available()) {
    return "no GPU test was run: this build has no CUDA kernels (no nvcc was found)";
  }
  const bool any = c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA) &&
                   c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount() > 0;
  return any ? nullptr : "no GPU test was run: there is no GPU, or no driver for it";
}

/// cuDNN keeps to algorithms that give the same bits each time, which many tests ask for.
inline void keep_bits_equal() {
  at::globalContext().setDeterministicCuDNN(true);
}

}  // namespace lockstep::testing
