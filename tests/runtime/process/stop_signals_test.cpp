#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/process/impl/host_threads.h>
#include <lockstep/runtime/process/impl/kept_stop_signals.h>
#include <lockstep/runtime/process/impl/stop_signals.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <optional>
#include <thread>

#include "error_of.h"
#include "test_names.h"
#include "threads_that_block.h"

namespace lockstep {

using namespace detail;

namespace {

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

void (*action_of(int signal))(int) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

TEST_F(StopSignalsTest, ASecondSigintEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopSignals signals({SIGTERM, SIGINT});
        kill(getpid(), SIGINT);
        while (!signals.came()) {
          std::this_thread::yield();
        }
        std::fputs("the first was noticed", stderr);
        kill(getpid(), SIGINT);
        pause();
      },
      ::testing::KilledBySignal(SIGINT), "the first was noticed");
}

TEST_F(StopSignalsTest, ASecondSigintEndsAProcessThatNeverLooksForTheFirst) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopSignals signals({SIGINT});
        kill(getpid(), SIGINT);
        while (action_of(SIGINT) != SIG_DFL) {
          std::this_thread::yield();
        }
        kill(getpid(), SIGINT);
        for (;;) {
        }
      },
      ::testing::KilledBySignal(SIGINT), "");
}

TEST_F(StopSignalsTest, OneSigintOfTheThreadThatTrainsIsNoticedToo) {
  const StopSignals signals({SIGINT});
  std::raise(SIGINT);
  EXPECT_TRUE(signals.came());
}

TEST_F(StopSignalsTest, SigintEndsAProcessThatIsLeaving) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        {
          const StopSignals signals({SIGTERM, SIGINT});
          keep_stop_signals();
        }
        std::raise(SIGTERM);
        std::fputs("goes on", stderr);
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "goes on");
}

/// The variables of launchers, without which a process was started by hand.
class UsualStopSignalsTest : public ::testing::Test {
 protected:
  UsualStopSignalsTest() {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"}) {
      unsetenv(name);
    }
  }
  ~UsualStopSignalsTest() override {
    unsetenv("OMPI_COMM_WORLD_SIZE");
    std::signal(SIGINT, SIG_DFL);
  }
};

TEST_F(UsualStopSignalsTest, SigintIsAmongThemOnlyWithoutALauncher) {
  EXPECT_THAT(usual_stop_signals(), ::testing::ElementsAre(SIGTERM, SIGUSR1, SIGINT));
  setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  EXPECT_THAT(usual_stop_signals(), ::testing::ElementsAre(SIGTERM, SIGUSR1));
}

TEST_F(UsualStopSignalsTest, SigintThatTheProgramHandlesOrIgnoresIsLeftAlone) {
  std::signal(SIGINT, [](int) {});
  EXPECT_THAT(usual_stop_signals(), ::testing::ElementsAre(SIGTERM, SIGUSR1));
  std::signal(SIGINT, SIG_IGN);  // as nohup, and the shell for `program &` in a script
  EXPECT_THAT(usual_stop_signals(), ::testing::ElementsAre(SIGTERM, SIGUSR1));
}

TEST_F(UsualStopSignalsTest, TheyAreTheSameWhileSomeoneAsksForThem) {
  const StopSignals first(usual_stop_signals());
  EXPECT_THAT(usual_stop_signals(), ::testing::ElementsAre(SIGTERM, SIGUSR1, SIGINT));
}

}  // namespace
}  // namespace lockstep
