#include <gtest/gtest.h>
#include <lockstep/collectives/impl/backoff.h>

#include <chrono>
#include <thread>

namespace lockstep::detail {
namespace {

TEST(Backoff, CountsASecondOfTheTimeInWhichItsProcessWasSuspended) {
  for (const bool crowded : {false, true}) {
    Backoff backoff(crowded);
    for (int i = 0; i < 1000; ++i) {
      backoff.pause();
    }
    const double before = backoff.seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    backoff.pause();
    EXPECT_GT(backoff.seconds(), before);
    EXPECT_LT(backoff.seconds(), before + 1.01);
  }
}

}  // namespace
}  // namespace lockstep::detail
