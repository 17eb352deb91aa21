#include <gtest/gtest.h>

#include "mpi_world.h"

using lockstep::testing::world;

// Fails on purpose, on the last rank only; CMakeLists.txt expects it.
TEST(OneRank, Fails) {
  EXPECT_NE(world().rank(), world().size() - 1);
}
