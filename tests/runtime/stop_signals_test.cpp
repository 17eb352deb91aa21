#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/process/host_threads.h>
#include <lockstep/runtime/process/kept_stop_signals.h>
#include <lockstep/runtime/process/stop_signals.h>
#include <unistd.h>

#include <future>
#include <optional>
#include <thread>

#include "error_of.h"
#include "threads_that_block.h"

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

bool is_blocked_here(int signal) {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return sigismember(&blocked, signal) == 1;
}

// A handler in the middle of oneDNN's LSTM backward damages the heap.
TEST_F(StopSignalsTest, InterruptNeitherTheThreadThatMadeThemNorThoseThatItStarts) {
  {
    const StopSignals signals({SIGUSR2});
    EXPECT_TRUE(is_blocked_here(SIGUSR2));
    bool in_thread = false;
    std::thread([&] { in_thread = is_blocked_here(SIGUSR2); }).join();
    EXPECT_TRUE(in_thread);
    kill(getpid(), SIGUSR2);
    EXPECT_TRUE(signals.came());
  }
  EXPECT_FALSE(is_blocked_here(SIGUSR2));
  EXPECT_EQ(heard_before, 0);
}

TEST_F(StopSignalsTest, DoNotInterruptTheThreadsThatComputeForARuntime) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        start_compute_threads(3);
        std::_Exit(10 * testing::threads_that_block(SIGUSR2) +
                   testing::threads_that_block(SIGSEGV));
      },
      ::testing::ExitedWithCode(20), "");
}

TEST_F(StopSignalsTest, ThatNobodyAskedForDoNotComeOnceTheyArePutBack) {
  std::optional<StopSignals> signals(std::in_place, std::vector<int>{SIGUSR2});
  std::raise(SIGUSR2);
  signals.reset();
  EXPECT_EQ(heard_before, 0);
}

TEST_F(StopSignalsTest, ThatCameBeforeAnotherWasMadeAreNotForIt) {
  const StopSignals first({SIGUSR2});
  std::raise(SIGUSR2);
  const StopSignals second({SIGUSR2});
  EXPECT_FALSE(second.came());
  EXPECT_TRUE(first.came());
}

TEST_F(StopSignalsTest, StayBlockedIfTheyWereBlockedBefore) {
  sigset_t usr2;
  sigemptyset(&usr2);
  sigaddset(&usr2, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &usr2, nullptr);
  { const StopSignals signals({SIGUSR2}); }
  EXPECT_TRUE(is_blocked_here(SIGUSR2));
  pthread_sigmask(SIG_UNBLOCK, &usr2, nullptr);
}

TEST_F(StopSignalsTest, OfAThreadThatIsOlderAreCountedThere) {
  std::promise<void> made;
  std::promise<void> raised;
  std::thread older([&] {
    made.get_future().wait();
    std::raise(SIGUSR2);
    raised.set_value();
  });
  const StopSignals signals({SIGUSR2});
  made.set_value();
  raised.get_future().wait();
  EXPECT_TRUE(signals.came());
  EXPECT_EQ(heard_before, 0);
  older.join();
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
