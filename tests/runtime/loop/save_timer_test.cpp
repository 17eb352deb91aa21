// When snapshots are due by time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/loop/impl/save_timer.h>

#include <limits>

#include "runtime/across_ranks.h"
#include "test_names.h"

namespace lockstep {
namespace {

TEST(SaveTimer, TheClockOfRankZeroDecidesForAllRanks) {
  double seconds = 1000.0;  // of rank 0; all others are years ahead, or at the beginning
  const auto clock = [&] {
    return runtime().rank() == 0 ? seconds
                                 : (runtime().rank() - 1) * std::numeric_limits<float>::max();
  };
  detail::SaveTimer timer(runtime().control(), 60.0, clock);
  EXPECT_FALSE(timer.is_due());
  seconds += 59.0;
  EXPECT_FALSE(timer.is_due());
  seconds += 1.0;
  EXPECT_TRUE(timer.is_due());
  EXPECT_TRUE(timer.is_due()) << "until the save";
  timer.restart();
  EXPECT_FALSE(timer.is_due());
  seconds += 61.0;
  EXPECT_TRUE(timer.is_due());
}

TEST(SaveTimer, WithoutAnIntervalNothingIsDueAndNoRankIsAsked) {
  const detail::SaveTimer timer(runtime().control(), 0.0, [] { return 1e9; });
  if (runtime().is_main()) {
    EXPECT_FALSE(timer.is_due());
  }
}

}  // namespace
}  // namespace lockstep
