// An mpirun that lets ranks be after one has failed, as Open MPI 5's does if it is told to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "launch.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LauncherOpenMpi5 : public ::testing::Test {
 protected:
  LauncherOpenMpi5() {
    std::ofstream(mpirun()) << R"(#!/bin/bash
[ "$1" = --version ] && { echo 'mpirun (Open MPI) 5.0.7'; exit 0; }
while [ "${1##*/}" != lockstep ]; do shift; done
export OMPI_COMM_WORLD_SIZE=2
OMPI_COMM_WORLD_RANK=0 "$@" & first=$!
OMPI_COMM_WORLD_RANK=1 "$@" & second=$!
for each in USR1 USR2 ALRM; do trap "kill -$each $first $second 2> /dev/null" $each; done
while kill -0 $first 2> /dev/null || kill -0 $second 2> /dev/null; do wait; done
exit 0
)";
    chmod(mpirun().c_str(), 0755);
  }
  std::string mpirun() const { return folder_.path() + "/mpirun"; }
  std::vector<std::string> ranks(const std::string& text) const {
    return script({"-n", "2", "--mpirun", mpirun()}, text);
  }

  const Folder folder_;
};

TEST_F(LauncherOpenMpi5, IsToldToLetTheOtherRanksBeUnlessTheUserSaysSo) {
  const std::string told = "--runtime-options error-nonzero-status=0 ";
  const Launched own = launch({"run", "-n", "2", "--dry-run", "--mpirun", mpirun(), "--", "true"});
  EXPECT_THAT(own.out, AllOf(HasSubstr(told), HasSubstr("--mca btl self,sm ")));
  const Launched other =
      launch({"run", "-n", "2", "--dry-run", "--mpirun", mpirun(), "--mpi-arg=--runtime-options",
              "--mpi-arg=abort-nonzero-status=0", "--", "true"});
  EXPECT_THAT(other.out, AllOf(Not(HasSubstr(told)), HasSubstr("abort-nonzero-status=0")));
}

TEST_F(LauncherOpenMpi5, TheJobHasTheFirstCodeAndShowsWhatOthersPrintAfterIt) {
  const Launched result =
      launch(ranks("[ $RANK = 1 ] && exit 7; sleep 0.5; echo later; echo more >&2; exit 4"));
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.out, HasSubstr("[0] later\n"));
  EXPECT_THAT(result.error,
              AllOf(HasSubstr("[0] more\n"), HasSubstr("lockstep: rank 1 ended with exit code 7")));
}

TEST_F(LauncherOpenMpi5, ASignalThatKillsARankIsTheCodeOfTheJob) {
  const Launched result = launch(ranks("[ $RANK = 0 ] && kill -SEGV $$; exit 0"));
  EXPECT_EQ(result.code, 128 + SIGSEGV);
  EXPECT_THAT(result.error, HasSubstr("lockstep: rank 0 was killed by SIGSEGV"));
}

TEST_F(LauncherOpenMpi5, ARankThatGoesOnIsAskedToEndThenKilled) {
  const std::string word = unique_word();
  const Launched result =
      launch(ranks("[ $RANK = 1 ] && exit 7; trap 'echo asked' TERM; while :; do sleep 0.1; done; "
                   ": " +
                   word));
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.out, HasSubstr("[0] asked\n"));
  EXPECT_THAT(result.error, HasSubstr("lockstep: rank 1 ended with exit code 7"));
  EXPECT_TRUE(all_gone(word));
}

TEST_F(LauncherOpenMpi5, AStopHasTheCodeOfTheRanksAndTime) {
  const auto ready = [sent = false](pid_t pid, const std::string& out) mutable {
    if (!sent && out.find("[0] ready") != std::string::npos &&
        out.find("[1] ready") != std::string::npos) {
      kill(pid, SIGTERM);
      sent = true;
    }
  };
  const Launched result = launch(ranks("trap 'sleep $RANK; echo saved; exit 75' USR1; echo ready; "
                                       "while :; do sleep 0.1; done"),
                                 ready);
  EXPECT_EQ(result.code, 75);
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0] saved\n"), HasSubstr("[1] saved\n")));
}

TEST_F(LauncherOpenMpi5, ARankWithoutAReportIsAFailure) {
  const Launched result = launch(ranks("[ $RANK = 1 ] && kill -9 $PPID; sleep 1; exit 0"));
  EXPECT_EQ(result.code, 20) << result.error;
}

TEST_F(LauncherOpenMpi5, RanksThatAllEndWellAreAJobThatDoes) {
  EXPECT_EQ(launch(ranks("exit 0")).code, 0);
}

}  // namespace
}  // namespace lockstep::testing
