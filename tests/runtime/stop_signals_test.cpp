#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/process/kept_stop_signals.h>
#include <lockstep/runtime/process/stop_signals.h>

#include <optional>

#include "error_of.h"

namespace lockstep {

using namespace detail;

namespace {

using testing::error_of;
using ::testing::HasSubstr;

int heard_before = 0;

/// What is done about SIGUSR2 where nobody asks for more.
class StopSignalsTest : public ::testing::Test {
 protected:
  StopSignalsTest() {
    heard_before = 0;
    std::signal(SIGUSR2, [](int) { ++heard_before; });
  }
  ~StopSignalsTest() override { std::signal(SIGUSR2, SIG_DFL); }
};

TEST_F(StopSignalsTest, SeesEachOfItsSignals) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const StopSignals signals({SIGTERM, SIGUSR1});
    EXPECT_FALSE(signals.came());
    std::raise(signal);
    std::raise(signal);  // Slurm sends SIGTERM twice at a time limit
    EXPECT_TRUE(signals.came());
  }
}

TEST_F(StopSignalsTest, PutsBackWhatWasDoneBefore) {
  std::optional<StopSignals> signals(std::in_place, std::vector<int>{SIGUSR2});
  std::raise(SIGUSR2);
  EXPECT_EQ(heard_before, 0);
  EXPECT_TRUE(signals->came());
  signals.reset();
  std::raise(SIGUSR2);
  EXPECT_EQ(heard_before, 1);
}

TEST_F(StopSignalsTest, TwoAtATimeSeeTheSameSignal) {
  const StopSignals first({SIGUSR2});
  const StopSignals second({SIGUSR2});
  std::raise(SIGUSR2);
  EXPECT_TRUE(first.came());
  EXPECT_TRUE(second.came());
}

TEST_F(StopSignalsTest, ASignalThatCannotBeCaughtIsNamedAndTheOthersArePutBack) {
  EXPECT_THAT(error_of([] {
                StopSignals({SIGUSR2, SIGKILL});
              }),
              HasSubstr("signal 9 cannot ask for a stop: Invalid argument"));
  std::raise(SIGUSR2);
  EXPECT_EQ(heard_before, 1);
}

TEST_F(StopSignalsTest, OfAProcessThatIsLeavingStay) {
  EXPECT_EXIT(
      {
        {
          const StopSignals signals({SIGTERM});
          keep_stop_signals();
        }
        std::raise(SIGTERM);
        std::_Exit(75);
      },
      ::testing::ExitedWithCode(75), "");
}

TEST_F(StopSignalsTest, OfAProcessThatGoesOnArePutBack) {
  EXPECT_EXIT(
      {
        const ProcessGoesOn guest;
        {
          const StopSignals signals({SIGTERM});
          keep_stop_signals();
        }
        std::raise(SIGTERM);
        std::_Exit(75);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace lockstep
