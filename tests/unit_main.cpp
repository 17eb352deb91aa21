#include <gtest/gtest.h>

#include "seeds.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  lockstep::testing::seed_every_test();
  return RUN_ALL_TESTS();
}
