#include <gtest/gtest.h>

#include "seeds.h"
#include "test_device.h"

c10::Device lockstep::testing::device() {
  return c10::Device(c10::kCPU);
}

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  lockstep::testing::seed_every_test();
  return RUN_ALL_TESTS();
}
