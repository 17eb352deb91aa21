#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "launch.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A rank that sleeps so long is ended by the launcher, or launch() fails the test.
const std::string for_ever = "exec sleep 600";

TEST(LauncherFailure, TheFailingRanksCodeIsTheCommandsCode) {
  for (const int code : {1, 10, 75}) {
    const Launched result = launch(
        script({"-n", "2"}, "[ $RANK = 1 ] && exit " + std::to_string(code) + "; " + for_ever));
    EXPECT_EQ(result.code, code);
    EXPECT_THAT(result.error, HasSubstr("rank 1 ended with exit code " + std::to_string(code)));
  }
}

TEST(LauncherFailure, OneRankFailsWithItsOwnCode) {
  const Launched result = launch(script({"-n", "1"}, "echo why >&2; exit 11"));
  EXPECT_EQ(result.code, 11);
  EXPECT_THAT(result.error, AllOf(HasSubstr("rank 0 ended with exit code 11"), HasSubstr("| why")));
}

TEST(LauncherFailure, AKilledRankIsNamedWithItsSignal) {
  const Launched result =
      launch(script({"-n", "3"}, "[ $RANK = 2 ] && kill -KILL $$; " + for_ever));
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.error, HasSubstr("rank 2 was killed by SIGKILL"));
}

TEST(LauncherFailure, ACrashIsNamedWithItsSignal) {
  const Launched result = launch(script({"-n", "1"}, "kill -SEGV $$"));
  EXPECT_EQ(result.code, 139);
  EXPECT_THAT(result.error, HasSubstr("rank 0 was killed by SIGSEGV and printed nothing"));
}

TEST(LauncherFailure, TheLastTenLinesOfTheFailingRankAreShown) {
  const Launched result =
      launch(script({"-n", "2"},
                    "[ $RANK = 0 ] && exec sleep 600; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do "
                    "echo line $i; done; exit 3"));
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.error, AllOf(HasSubstr("  | line 3\n"), HasSubstr("  | line 12\n"),
                                  Not(HasSubstr("  | line 2\n"))));
}

TEST(LauncherFailure, ARankThatLostItsPeersIsNotBlamed) {
  // Rank 0 reports the loss (code 20) before rank 1, the cause, is seen to end. Rank 0 waits until
  // rank 1 ignores SIGTERM: mpirun ends rank 1 as soon as rank 0 has failed.
  const Folder folder;
  const std::string started = folder.path() + "/started";
  const Launched result =
      launch(script({"-n", "2"}, "[ $RANK = 0 ] && { " + await({started}) +
                                     "exit 20; }; trap '' TERM; : >" + started + "; exit 22"));
  EXPECT_EQ(result.code, 22);
  EXPECT_THAT(result.error, HasSubstr("rank 1 ended with exit code 22"));
}

TEST(LauncherFailure, ARankThatIsEndedBecauseOfAnotherIsNotBlamed) {
  const Folder folder;
  const std::string started = folder.path() + "/started";
  const Launched result =
      launch(script({"-n", "2"}, "[ $RANK = 1 ] && { " + await({started}) +
                                     "exit 20; }; trap 'exit 1' TERM; : >" + started +
                                     "; while :; do sleep 0.05; done"));
  EXPECT_EQ(result.code, 20);
  EXPECT_THAT(result.error, HasSubstr("rank 1 ended with exit code 20"));
}

TEST(LauncherFailure, NothingOfAFailedJobIsLeftRunning) {
  const std::string word = unique_word();
  const Folder folder;
  const std::string started = folder.path() + "/started";
  const Launched result = launch(script(
      {"-n", "2"}, "sh -c 'sleep 600; : " + word + "' & sh -c 'trap \"\" TERM; : >" + started +
                       "'$RANK'; sleep 600; : " + word + "' & [ $RANK = 0 ] && { " +
                       await({started + "0", started + "1"}) + "exit 5; }; wait"));
  EXPECT_EQ(result.code, 5);
  EXPECT_TRUE(all_gone(word));
}

TEST(LauncherFailure, WhateverAProgramPrintsTheJobHasACauseAndIsStartedAgain) {
  const std::vector<std::string> prints = {
      "echo file rank 202511251234 is read",
      "echo ranks $(seq -s ', ' 0 5000) are sorted",
      "printf 'rank %050000d\\n' 7",
      "echo epoch 3: rank 2 has the lowest loss 0.31",
      "head -c 300000 /dev/zero; printf '\\377\\n'",
  };
  const Folder folder;
  for (const std::string& print : prints) {
    const Launched result =
        launch(script({"-n", "3", "--max-restarts", "1", "--log-dir", folder.path() + "/logs"},
                      "[ $LOCKSTEP_ATTEMPT = 1 ] && exit 0; [ $RANK != 0 ] && " + for_ever + "; " +
                          print + "; echo 'rank 0: rank 1 has died or left'; exit 20"));
    EXPECT_EQ(result.code, 0) << print;
    EXPECT_THAT(result.error, HasSubstr("lockstep: rank 0 ended with exit code 20"));
    EXPECT_THAT(result.error, HasSubstr("starting the job again"));
    EXPECT_THAT(folder.read("logs/attempt-1/failure.json"), HasSubstr("\"rank\": 0,"));
    std::filesystem::remove_all(folder.path() + "/logs");
  }
}

TEST(LauncherFailure, RanksThatWereEndedBecauseOfAnotherAreNotNamedWithIt) {
  const Folder folder;
  const auto file = [&](int rank) { return folder.path() + "/" + std::to_string(rank); };
  const Launched result =
      launch(script({"-n", "3"}, "echo ready; : >" + folder.path() + "/$RANK; [ $RANK = 2 ] && { " +
                                     await({file(0), file(1)}) + "kill -KILL $$; }; " + for_ever));
  EXPECT_EQ(result.code, 137);
  EXPECT_THAT(result.error, HasSubstr("lockstep: rank 2 was killed by SIGKILL; its last lines"));
}

TEST(LauncherFailure, WhatMpirunSaysOfItselfIsShown) {
  const Launched result =
      launch({"run", "-n", "2", "--mpi-arg=--no-such-option", "--", "/bin/true"});
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.out + result.error, HasSubstr("no-such-option"));
  EXPECT_THAT(result.error, HasSubstr("no rank reported a failure"));
}

}  // namespace
}  // namespace lockstep::testing
