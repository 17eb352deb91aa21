#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <lockstep/amp/cuda_kernels.h>

#include <iostream>

namespace {

constexpr int kSkipped = 77;

/// Why no test of this program can run here; null where all can.
const char* reason_to_skip() {
  if (!lockstep::amp::cuda_kernels_available()) {
    return "no GPU test was run: this build has no CUDA kernels (no nvcc was found)";
  }
  const bool any = c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA) &&
                   c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount() > 0;
  return any ? nullptr : "no GPU test was run: there is no GPU, or no driver for it";
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const char* reason = reason_to_skip()) {
    std::cout << reason << std::endl;
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
