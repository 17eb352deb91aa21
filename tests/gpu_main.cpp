#include <gtest/gtest.h>

#include <iostream>

#include "gpu_tests.h"
#include "gpu_transport.h"
#include "seeds.h"
#include "test_device.h"

c10::Device lockstep::testing::device() {
  return {c10::kCUDA, 0};
}

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const char* reason = lockstep::testing::reason_to_skip()) {
    std::cout << reason << std::endl;
    return lockstep::testing::gpu_tests_skipped;
  }
  if (const std::string reason = lockstep::testing::why_not_transport(); !reason.empty()) {
    std::cout << reason << std::endl;
    return lockstep::testing::gpu_tests_skipped;
  }
  lockstep::testing::keep_bits_equal();
  lockstep::testing::seed_every_test();
  return RUN_ALL_TESTS();
}
