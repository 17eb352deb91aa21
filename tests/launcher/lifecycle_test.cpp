// Ranks that do not start or do not end, jobs that are started again, and what is kept of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "launch.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LauncherDeadlines, ARankThatDoesNotStartIsNamedAndEndsTheJob) {
  const std::string word = unique_word();
  const Launched result = launch(signing({"-n", "2", "--report-after", "1", "--start-timeout", "5"},
                                         "[ $RANK = 1 ] || sign s; sleep 600; : " + word));
  EXPECT_EQ(result.code, 20);
  EXPECT_THAT(result.error, HasSubstr("lockstep: rank 1 has not made its runtime for "));
  EXPECT_THAT(result.error, HasSubstr("s; rank 0 waits\n"));
  EXPECT_TRUE(all_gone(word));
}

TEST(LauncherDeadlines, AnMpirunThatStartsNoRankIsNamedWithALowLimitOfOpenFiles) {
  const Folder folder;
  const std::string mpirun = folder.path() + "/mpirun";
  std::ofstream(mpirun) << "#!/bin/sh\n[ $1 = --version ] && echo Open MPI || exec sleep 600\n";
  std::filesystem::permissions(mpirun, std::filesystem::perms::owner_all);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low = {32, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &low);
  const Launched result = launch({"run", "-n", "2", "--mpirun", mpirun, "--report-after", "1",
                                  "--start-timeout", "2", "--", "/bin/true"});
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(result.code, 20);
  EXPECT_THAT(result.error, HasSubstr("lockstep: ranks 0-1 have not been started by mpirun for 1 "
                                      "s; the limit of open files is 32"));
}

TEST(LauncherDeadlines, AnMpirunThatDoesNotEndAfterItsRanksIsEnded) {
  const Folder folder;
  const std::string mpirun = folder.path() + "/mpirun";
  const std::string word = unique_word();
  std::ofstream(mpirun) << R"(#!/bin/bash
[ "$1" = --version ] && { echo Open MPI; exit 0; }
while [ "${1##*/}" != lockstep ]; do shift; done
export OMPI_COMM_WORLD_SIZE=2
OMPI_COMM_WORLD_RANK=0 "$@"
OMPI_COMM_WORLD_RANK=1 "$@"
exec -a )" << word << " sleep 600\n";
  std::filesystem::permissions(mpirun, std::filesystem::perms::owner_all);
  for (const int code : {0, 7}) {
    const Launched result = launch(
        script({"-n", "2", "--mpirun", mpirun, "--grace", "1"}, "exit " + std::to_string(code)));
    EXPECT_EQ(result.code, code);
    EXPECT_EQ(result.error.find("all ranks have ended, but mpirun has not") != std::string::npos,
              code == 0);
    EXPECT_TRUE(all_gone(word));
  }
}

TEST(LauncherDeadlines, ARankThatDoesNotLeaveIsNamedAndEndsTheJob) {
  const Launched result = launch(signing({"-n", "2", "--report-after", "1", "--end-timeout", "2"},
                                         "sign s u; [ $RANK = 1 ] && sign l; sleep 600"));
  EXPECT_EQ(result.code, 20);
  EXPECT_THAT(result.error, HasSubstr("lockstep: rank 0 has not left its runtime for "));
}

TEST(LauncherDeadlines, AProcessThatDoesNotEndIsNamedAndEndsTheJob) {
  const Folder folder;
  const std::string left = folder.path() + "/left";
  const std::string here = folder.path() + "/here";
  // Rank 1 has started before rank 0 leaves, since the deadline runs from there.
  const Launched result = launch(signing(
      {"-n", "2", "--report-after", "1", "--end-timeout", "10"},
      "if [ $RANK = 0 ]; then " + await({here}) + " else : >" + here + "; " + await({left}) +
          " fi; sign s u l e; : >" + left + "; [ $RANK = 1 ] || sleep 600"));
  EXPECT_EQ(result.code, 20);
  EXPECT_THAT(result.error, HasSubstr("lockstep: rank 0 has left, but its process has not ended"));
}

TEST(LauncherDeadlines, AJobThatTakesTooLongIsAskedToStop) {
  const Launched result = launch(script({"-n", "2", "--timeout", "1"}, "exec sleep 600"));
  EXPECT_EQ(result.code, 20);
  EXPECT_THAT(result.error, HasSubstr("the job took longer than 1 s (--timeout)"));
  // Ranks that listen keep their code. They may need longer to start than the job may take.
  for (int limit = 2;; limit *= 2) {
    ASSERT_LE(limit, 16) << "the ranks did not start";
    const Launched stopped =
        launch(script({"-n", "2", "--grace", "20", "--timeout", std::to_string(limit)},
                      "trap 'exit 75' USR1; echo ready; while :; do sleep 0.05; done"));
    if (stopped.out.find("[0] ready") != std::string::npos &&
        stopped.out.find("[1] ready") != std::string::npos) {
      EXPECT_EQ(stopped.code, 75);
      break;
    }
  }
}

TEST(LauncherCause, ARankThatFailsWinsOverItsConsequences) {
  const Folder folder;
  // Rank 0 has said why it leaves, but is killed before it can, since rank 1 is faster.
  const Launched result = launch(
      signing({"-n", "2"}, "sign s u; cd " + folder.path() +
                               "; if [ $RANK = 0 ]; then trap '' TERM; echo 'rank 0: why' >&2; "
                               "sign f x3; touch said; sleep 600; "
                               "else " +
                               await({"said"}) + "exit 20; fi"));
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.error, AllOf(HasSubstr("lockstep: rank 0 ended with exit code 3"),
                                  HasSubstr("  | rank 0: why\n")));
}

TEST(LauncherCause, ExitCode0OfOneRankOfSeveralIsAFailure) {
  const Launched result =
      launch(signing({"-n", "2"}, "sign s u; [ $RANK = 1 ] && exit 0; sleep 600"));
  EXPECT_EQ(result.code, 20);
  EXPECT_THAT(result.error,
              HasSubstr("lockstep: rank 1 ended with exit code 0 before its runtime had ended"));
  EXPECT_EQ(launch(signing({"-n", "1"}, "sign s u; exit 0")).code, 0);
}

TEST(LauncherCause, ExitCode0BeforeTheRuntimeEndsTheJob) {
  const Launched result =
      launch(signing({"-n", "2", "--grace", "1"}, "[ $RANK = 1 ] && exit 0; sign s; sleep 600"));
  EXPECT_EQ(result.code, 20);
  EXPECT_THAT(result.error,
              HasSubstr("lockstep: rank 1 ended with exit code 0 before making a runtime"));
}

TEST(LauncherCause, ARankThatFailsAndDoesNotEndIsEnded) {
  const std::string word = unique_word();
  const Launched result = launch(
      signing({"-n", "2", "--grace", "1"},
              "trap '' TERM USR1; sign s u; [ $RANK = 1 ] && sign f x22; sleep 600; : " + word));
  EXPECT_EQ(result.code, 22);
  EXPECT_THAT(result.error, HasSubstr("lockstep: rank 1 ended with exit code 22"));
  EXPECT_TRUE(all_gone(word));
}

TEST(LauncherCause, ARankEndsWithItsWrapper) {
  const std::string word = unique_word();
  const Folder folder;
  const std::string started = folder.path() + "/started";
  const Launched result =
      launch({"run", "-n", "2", "--", "/bin/bash", "-c",
              "[ $OMPI_COMM_WORLD_RANK = 0 ] && { : >" + started + "; exec sleep 600; }; " +
                  await({started}) +
                  "trap '' TERM HUP; kill -KILL $PPID; while :; do sleep 0.1; done; : " + word});
  EXPECT_EQ(result.code, 20);
  EXPECT_THAT(result.error, HasSubstr("lockstep: rank 1 on "));
  EXPECT_TRUE(all_gone(word));
}

TEST(LauncherRestarts, AFailedJobIsStartedAgainAndRanksKnowTheAttempt) {
  const Launched result =
      launch(script({"-n", "2", "--max-restarts", "3"},
                    "echo attempt $LOCKSTEP_ATTEMPT; [ $LOCKSTEP_ATTEMPT = 1 ] || exit 7"));
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("attempt 0"), HasSubstr("attempt 1"), Not(HasSubstr("attempt 2"))));
  EXPECT_THAT(result.error, HasSubstr("starting the job again in 2 s, attempt 2 of at most 4"));
}

TEST(LauncherRestarts, ACrashLoopEnds) {
  const Launched result = launch(script({"-n", "1", "--max-restarts", "9"}, "exit 7"));
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.error, HasSubstr("not started again: two attempts in a row"));
}

TEST(LauncherRestarts, AllAttemptsAndTheWaitsBetweenThemShareTheTimeout) {
  // Each attempt saves a snapshot, so that only its number would end the restarts: five waits of
  // 1 s lie before the sixth attempt.
  const Launched result = launch(signing({"-n", "1", "--timeout", "3", "--max-restarts", "5"},
                                         "echo attempt $LOCKSTEP_ATTEMPT; sign p/1; exit 7"));
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.error, HasSubstr("(--timeout)"));
  EXPECT_THAT(result.out, Not(HasSubstr("attempt 5")));
}

TEST(LauncherRestarts, WrongUseAndAStopAreNotFollowedByOne) {
  EXPECT_THAT(launch(script({"-n", "1", "--max-restarts", "9"}, "exit 2")).error,
              HasSubstr("not started again: wrong usage"));
  bool sent = false;
  const Launched stopped = launch(script({"-n", "1", "--max-restarts", "9"},
                                         "trap 'exit 7' USR1; echo ready; while :; do sleep 0.05; "
                                         "done"),
                                  [&](pid_t pid, const std::string& out) {
                                    if (!sent && out.find("ready") != std::string::npos) {
                                      kill(pid, SIGTERM);
                                      sent = true;
                                    }
                                  });
  EXPECT_EQ(stopped.code, 7);
  EXPECT_THAT(stopped.error, Not(HasSubstr("starting the job again")));
}

TEST(LauncherLogs, OfTheAttemptBeforeAreKept) {
  const Folder folder;
  for (const std::string word : {"first", "second", "third"}) {
    launch(script({"-n", "1", "--log-dir", folder.path()}, "echo " + word + "; exit 7"));
  }
  EXPECT_EQ(folder.read("rank-0.log"), "third\n");
  EXPECT_EQ(folder.read("attempt-1/rank-0.log"), "first\n");
  EXPECT_EQ(folder.read("attempt-2/rank-0.log"), "second\n");
  EXPECT_THAT(folder.read("attempt-1/failure.json"), HasSubstr("\"first\""));
}

TEST(LauncherLogs, TheReportOfAFailureIsJson) {
  const Folder folder;
  const std::string file = folder.path() + "/why.json";
  launch(
      signing({"-n", "2", "--failure-file", file},
              "sign s u p/runs/step-4; [ $RANK = 1 ] && { echo bad; kill -SEGV $$; }; sleep 600"));
  EXPECT_THAT(folder.read("why.json"),
              AllOf(HasSubstr("\"rank\": 1,"), HasSubstr("\"signal\": \"SIGSEGV\","),
                    HasSubstr("\"code\": 139,"), HasSubstr("\"bad\""),
                    HasSubstr("\"snapshot\": \"/runs/step-4\",")));
}

TEST(LauncherLogs, OfASuccessHaveNoReport) {
  const Folder folder;
  launch(script({"-n", "1", "--log-dir", folder.path()}, "echo fine"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/failure.json"));
}

TEST(LauncherOutput, OnlyTheRanksThatWereAskedForAreShown) {
  const Folder folder;
  const Launched result = launch(
      script({"-n", "3", "--show-ranks", "0,2-5", "--log-dir", folder.path()}, "echo I am $RANK"));
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("[0] I am 0"), HasSubstr("[2] I am 2"), Not(HasSubstr("[1]"))));
  EXPECT_EQ(folder.read("rank-1.log"), "I am 1\n");
  for (const std::string wrong : {"a", "1-", "3-2", "-1", "1,,2"}) {
    EXPECT_EQ(launch({"run", "-n", "1", "--show-ranks=" + wrong, "--", "/bin/true"}).code, 2)
        << wrong;
  }
}

}  // namespace
}  // namespace lockstep::testing
