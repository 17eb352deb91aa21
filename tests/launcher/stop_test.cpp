#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "launch.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

/// Sends `signal` once `times` ranks have printed "ready".
auto when_ready(int signal, size_t times) {
  return [signal, times, sent = false](pid_t pid, const std::string& out) mutable {
    if (!sent && count(out, "ready") == times) {
      kill(pid, signal);
      sent = true;
    }
  };
}

const char* const saves_and_ends =
    "trap 'echo saved; exit 75' USR1; echo ready; while :; do sleep 0.05; done";

TEST(LauncherStop, SigtermLetsEveryRankSaveAndKeepsTheirCode) {
  const Launched result = launch(script({"-n", "2"}, saves_and_ends), when_ready(SIGTERM, 2));
  EXPECT_EQ(result.code, 75);
  EXPECT_THAT(result.out, HasSubstr("[0] saved"));
  EXPECT_THAT(result.out, HasSubstr("[1] saved"));
  EXPECT_THAT(result.error, Not(HasSubstr("ended with exit code")));
}

TEST(LauncherStop, SigintAndSigquitDoTheSame) {
  for (const int signal : {SIGINT, SIGQUIT}) {
    const Launched result = launch(script({"-n", "1"}, saves_and_ends), when_ready(signal, 1));
    EXPECT_EQ(result.code, 75);
    EXPECT_THAT(result.out, HasSubstr("[0] saved"));
  }
}

TEST(LauncherStop, TwoSigintsAtOnceAreOneRequest) {
  bool sent = false;
  const Launched result =
      launch(script({"-n", "2"},
                    "trap 'sleep 1; echo saved; exit 75' USR1; echo ready; while :; do sleep 0.05; "
                    "done"),
             [&](pid_t pid, const std::string& out) {
               if (!sent && count(out, "ready") == 2) {
                 kill(pid, SIGINT);
                 std::this_thread::sleep_for(std::chrono::milliseconds(50));
                 kill(pid, SIGINT);
                 sent = true;
               }
             });
  EXPECT_EQ(result.code, 75);
  EXPECT_EQ(count(result.out, "saved"), 2U);
  EXPECT_THAT(result.error, Not(HasSubstr("asking harder")));
}

TEST(LauncherStop, ProgramsThatKnowNoUsr1EndAndTheCodeNamesTheSignal) {
  EXPECT_EQ(launch(script({"-n", "2"}, "echo ready; exec sleep 600"), when_ready(SIGINT, 2)).code,
            128 + SIGINT);
  EXPECT_EQ(launch(script({"-n", "1"}, "echo ready; exec sleep 600"), when_ready(SIGTERM, 1)).code,
            128 + SIGTERM);
}

TEST(LauncherStop, RanksThatDoNotListenAreEndedAfterTheGraceTime) {
  const std::string word = unique_word();
  for (const std::string ranks : {"1", "2"}) {
    const Launched result = launch(
        script({"-n", ranks, "--grace", "1"}, "trap '' USR1; trap 'exit 9' TERM; echo ready; : " +
                                                  word + "; while :; do sleep 0.05; done"),
        when_ready(SIGTERM, ranks == "1" ? 1 : 2));
    EXPECT_NE(result.code, 0);
    EXPECT_GE(result.seconds, 1.0);
    EXPECT_TRUE(all_gone(word));
  }
}

TEST(LauncherStop, RanksThatIgnoreEverythingAreKilled) {
  const std::string word = unique_word();
  const Launched result =
      launch(script({"-n", "2", "--grace", "0"}, "trap '' USR1 TERM INT; echo ready; : " + word +
                                                     "; while :; do sleep 0.05; done"),
             when_ready(SIGTERM, 2));
  EXPECT_EQ(result.code, 128 + SIGTERM);
  EXPECT_THAT(result.error, HasSubstr("not saved is lost; --grace SECONDS gives them longer"));
  EXPECT_TRUE(all_gone(word));
}

TEST(LauncherStop, NothingSurvivesWhenTheCommandItselfIsKilled) {
  const std::string word = unique_word();
  for (const std::string ranks : {"1", "2"}) {
    const Launched result =
        launch(script({"-n", ranks}, "trap '' TERM USR1 HUP; echo ready; : " + word +
                                         "; while :; do sleep 0.05; done"),
               when_ready(SIGKILL, ranks == "1" ? 1 : 2));
    EXPECT_EQ(result.code, 137);
    EXPECT_TRUE(all_gone(word));
  }
}

}  // namespace
}  // namespace lockstep::testing
