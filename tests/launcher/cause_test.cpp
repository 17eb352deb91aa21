// Which rank a failed job is blamed on, and what is said of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cause.h"
#include "failure_report.h"
#include "restart_policy.h"

namespace lockstep::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Kind = RankLine::Kind;

/// A job of three ranks whose reports come one after the other.
class CauseOfAJob : public ::testing::Test {
 protected:
  void report(int rank, Kind kind, const std::string& text) {
    table.add({rank, kind, text});
    output.add({rank, kind, text});
  }
  std::string cause(int code, JobEnd end = {1, "", false, false}) {
    found = find_cause(table, output, end);
    if (!found) {
      ADD_FAILURE() << "no cause";
      return "";
    }
    EXPECT_EQ(found->code, code);
    return describe(*found, table, output);
  }
  std::ostringstream printed;
  RankTable table{3};
  JobOutput output{printed, printed, {}};
  std::optional<Cause> found;
};

std::string lost(int rank, int other, const std::string& how) {
  const std::string me = "rank " + std::to_string(rank);
  return me + ": " + me + " of 3: all_reduce #45 timed out after 5.0 s: rank " +
         std::to_string(other) + " " + how + " (its last call was #44)";
}

TEST_F(CauseOfAJob, IsTheRankThatOtherRanksWaitFor) {
  report(1, Kind::line, lost(1, 0, "has died or left"));
  report(1, Kind::status, "20");
  report(0, Kind::line, lost(0, 2, "did not arrive"));
  report(0, Kind::status, "20");
  report(2, Kind::halted, "19");
  report(2, Kind::stopped, "137");
  EXPECT_THAT(cause(20), AllOf(HasSubstr("rank 2 did not arrive"), HasSubstr("by SIGSTOP"),
                               HasSubstr("the last lines of rank 0:\n  | rank 0: ")));
}

TEST_F(CauseOfAJob, IsNothingIfAllEndedWellWhateverTheySaidOnTheWay) {
  report(0, Kind::word, "f");
  report(0, Kind::word, "x23");
  report(0, Kind::status, "0");
  EXPECT_FALSE(find_cause(table, output, {0, "", false, false}).has_value());
}

TEST_F(CauseOfAJob, OfRanksThatWaitForEachOtherIsAllOfThem) {
  for (const int rank : {0, 1, 2}) {
    report(rank, Kind::line, lost(rank, (rank + 1) % 3, "did not arrive"));
    report(rank, Kind::status, "20");
  }
  EXPECT_THAT(cause(20), HasSubstr("ranks 0-2 waited for each other"));
}

TEST_F(CauseOfAJob, IsNeverARankThatOnlyLostItsPeer) {
  report(1, Kind::line, lost(1, 0, "has died or left"));
  report(1, Kind::status, "20");
  report(0, Kind::word, "u");
  report(0, Kind::line, "rank 0: no such file");
  report(0, Kind::status, "1");
  EXPECT_EQ(cause(1), "rank 0 ended with exit code 1; its last lines:\n  | rank 0: no such file\n");
}

TEST_F(CauseOfAJob, IsTheFirstOfSeveralFailures) {
  report(2, Kind::status, "139");
  report(0, Kind::status, "1");
  EXPECT_THAT(cause(139), HasSubstr("rank 2 was killed by SIGSEGV"));
}

TEST_F(CauseOfAJob, SaysHowFarTheRankWas) {
  report(0, Kind::word, "s");
  report(1, Kind::status, "139");
  EXPECT_THAT(cause(139), HasSubstr("rank 1 had not made a lockstep runtime\n"));
  report(1, Kind::word, "s");
  EXPECT_THAT(cause(139), HasSubstr("rank 1 was making its lockstep runtime\n"));
  report(1, Kind::word, "u");
  EXPECT_THAT(cause(139), Not(HasSubstr("runtime")));
  report(1, Kind::word, "e");
  EXPECT_THAT(cause(139), HasSubstr("rank 1 had left its lockstep runtime\n"));
}

TEST_F(CauseOfAJob, IsTheRankThatEndedWithoutARuntimeThoughWithCode0) {
  report(0, Kind::word, "s");
  report(1, Kind::status, "0");
  EXPECT_TRUE(table.has_failure());
  report(0, Kind::stopped, "143");
  report(2, Kind::stopped, "143");
  EXPECT_THAT(cause(20), HasSubstr("rank 1 ended with exit code 0 before making a runtime"));
}

TEST_F(CauseOfAJob, AreTheRanksThatWereLostWithTheirHost) {
  for (const int rank : {0, 1, 2}) {
    report(rank, Kind::began, rank == 0 ? "100 a" : "200 b");
    report(rank, Kind::word, "u");
  }
  report(0, Kind::line, lost(0, 1, "has died or left"));
  report(0, Kind::status, "20");
  EXPECT_THAT(cause(20, {205, "", false, true}),
              HasSubstr("ranks 1-2 on b ended without a report"));
}

TEST_F(CauseOfAJob, IsADeadlineUnlessARankFailed) {
  EXPECT_EQ(cause(20, {1, "rank 2 has not made its runtime for 9 s", false, true}),
            "rank 2 has not made its runtime for 9 s\n");
  report(1, Kind::status, "7");
  EXPECT_THAT(cause(7, {1, "late", false, true}), HasSubstr("rank 1 ended with exit code 7"));
}

TEST_F(CauseOfAJob, OfAStopIsTheRankThatSavedHoweverTheOthersEnded) {
  for (const int rank : {0, 1, 2}) {
    report(rank, Kind::began, "200 b");
    report(rank, Kind::word, "u");
  }
  report(0, Kind::stopped, "143");
  report(1, Kind::line, lost(1, 2, "has died or left"));
  report(1, Kind::status, "20");
  report(2, Kind::stopped, "75");
  const JobEnd by_usr1{143, "", false, false};
  const JobEnd by_launcher{143, "", true, false};
  const JobEnd by_timeout{143, "the job took longer than 9 s (--timeout)", true, false};
  for (const JobEnd& end : {by_usr1, by_launcher, by_timeout}) {
    cause(75, end);
    EXPECT_TRUE(found->stopped);
  }
}

TEST_F(CauseOfAJob, OfAStopIsNoFailureOfTheRankThatLeftBeforeItHeardOfIt) {
  report(1, Kind::word, "f");
  report(1, Kind::word, "x75");
  for (const bool has_ended : {false, true}) {
    if (has_ended) {
      report(1, Kind::status, "75");
    }
    cause(75, {75, "", true, false});
    EXPECT_TRUE(found->stopped);
  }
  report(0, Kind::status, "139");
  EXPECT_THAT(cause(139, {75, "", true, false}), HasSubstr("rank 0 was killed by SIGSEGV"));
}

TEST_F(CauseOfAJob, NamesTheRankThatSavedAndLeftThoughNobodyAskedTheLauncher) {
  report(1, Kind::status, "75");
  report(0, Kind::stopped, "137");
  EXPECT_THAT(cause(75, {75, "", false, false}), HasSubstr("rank 1 ended with exit code 75"));
}

TEST_F(CauseOfAJob, IsADeadlineThatPassedBeforeTheRanksWereEnded) {
  report(1, Kind::stopped, "75");
  EXPECT_EQ(cause(20, {75, "rank 1 has not left its runtime for 9 s", false, true}),
            "rank 1 has not left its runtime for 9 s\n");
}

TEST_F(CauseOfAJob, KeepsTheFirstLineOfALongMessage) {
  report(0, Kind::line, "before");
  report(0, Kind::line, lost(0, 2, "did not arrive"));
  for (int call = 0; call < 30; ++call) {
    report(0, Kind::line, "  all_reduce #" + std::to_string(call));
  }
  report(0, Kind::status, "20");
  EXPECT_THAT(cause(20), AllOf(HasSubstr("rank 2 did not arrive (its last"), HasSubstr("#29\n"),
                               Not(HasSubstr("before"))));
}

TEST_F(CauseOfAJob, IsWrittenAsJson) {
  report(1, Kind::began, "200 b");
  report(0, Kind::word, "p/runs/step-2");
  report(1, Kind::line, "rank 1: \xff");
  report(1, Kind::status, "139");
  cause(139);
  const std::string json =
      FailureReport{2, *found, &table, &output, {"prog", "a b"}, true}.render();
  EXPECT_THAT(json, AllOf(HasSubstr("\"attempt\": 2,"), HasSubstr("\"rank\": 1,"),
                          HasSubstr("\"host\": \"b\","), HasSubstr("\"signal\": \"SIGSEGV\","),
                          HasSubstr("\"snapshot\": \"/runs/step-2\","), HasSubstr("\"a b\""),
                          HasSubstr("\"restarted\": true")));
}

TEST_F(CauseOfAJob, OfAKilledRankIsNotThatOfRanksThatTheLauncherEnded) {
  for (const int rank : {0, 1, 2}) {
    report(rank, Kind::word, "u");
    report(rank, Kind::line, "rank " + std::to_string(rank) + ": ready");
  }
  report(2, Kind::status, "137");
  report(0, Kind::stopped, "143");
  report(1, Kind::stopped, "137");
  EXPECT_THAT(cause(137), ::testing::StartsWith("rank 2 was killed by SIGKILL; its last lines"));
}

TEST_F(CauseOfAJob, OfAProgramWithoutLockstepIsNotThatOfRanksThatPrintedTheSame) {
  for (const int rank : {0, 1, 2}) {
    report(rank, Kind::line, "ready");
  }
  report(2, Kind::status, "7");
  report(0, Kind::stopped, "143");
  EXPECT_THAT(cause(7), ::testing::StartsWith("rank 2 ended with exit code 7; its last lines"));
}

TEST_F(CauseOfAJob, OfRanksThatASignalKilledAlikeNamesThemInThePlural) {
  for (const int rank : {0, 1}) {
    report(rank, Kind::line, "ready");
    report(rank, Kind::status, "139");
  }
  EXPECT_THAT(cause(139),
              ::testing::StartsWith("ranks 0-1 were killed by SIGSEGV; the last lines of each"));
}

/// What programs may print before rank 0 says that rank 1 is gone.
std::vector<std::string> strange_lines() {
  std::string numbers = "ranks 0";
  for (int rank = 1; rank <= 5000; ++rank) {
    numbers += ", " + std::to_string(rank);
  }
  const std::string many_digits(50000, '7');
  return {"file rank 202511251234 is read",
          "rank 0: file rank 202511251234 is read",
          "rank 0: rank 202511251234 did not arrive",
          "rank 0: ranks 5-202511251234 did not arrive",
          "rank -1 did not arrive",
          "rank 0: rank -1 did not arrive",
          "rank 0: ranks 2-1 did not arrive",
          "rank 0: rank 0 did not arrive",
          "rank 0 of " + many_digits + ": x",
          numbers + " are sorted",
          "rank 0: " + numbers + " are sorted",
          "rank " + many_digits + " is read",
          "rank 0: rank " + many_digits + " did not arrive",
          "rank 0: ranks " + many_digits + "-" + many_digits + " did not arrive",
          "epoch 3: rank 2 has the lowest loss 0.31",
          "rank 0: rank 2 has the lowest loss 0.31",
          "rank 0: rank 2 has died out",
          "rank 2 did not arrive",
          "rank 10: rank 2 did not arrive",
          "frank 0: rank 2 did not arrive",
          "rank 0: frank 2 did not arrive",
          std::string(10 << 20, 'x'),
          "rank 0: " + std::string(10 << 20, ' '),
          std::string("rank 0: rank 2\0 did not arrive", 30),
          std::string("\0\0\0", 3),
          "\xff\xfe rank \xc0\xaf did not arrive",
          "rank",
          "ranks ",
          "rank 0: rank ",
          "rank 0: rank 2",
          "rank 0: ranks 2-",
          "rank 0: ranks 2, ",
          ""};
}

TEST_F(CauseOfAJob, IsFoundWhateverProgramsPrintAboutRanks) {
  for (const std::string& line : strange_lines()) {
    report(0, Kind::line, line);
  }
  report(0, Kind::line, lost(0, 1, "has died or left"));
  report(0, Kind::status, "20");
  EXPECT_THAT(cause(20), HasSubstr("rank 1 did not arrive"));
  EXPECT_THAT(found->ranks, ElementsAre(1));
  EXPECT_THAT((FailureReport{0, *found, &table, &output, {"prog"}, true}).render(),
              HasSubstr("\"rank\": 1,"));
}

TEST_F(CauseOfAJob, IsSaidWithTheBeginningOfAVeryLongLine) {
  report(0, Kind::line, "begins " + std::string(10 << 20, 'x'));
  report(0, Kind::status, "7");
  const std::string text = cause(7);
  EXPECT_THAT(text, AllOf(HasSubstr("  | begins xxx"), HasSubstr("x ...\n")));
  EXPECT_LT(text.size(), 100000U);
}

TEST(BlamedBy, ReadsTheRanksThatLockstepCallsLateOrGone) {
  EXPECT_THAT(blamed_by(0, 9, {"rank 0 of 9: x: rank 3 did not arrive; rank 4 has died or left"}),
              ElementsAre(3, 4));
  EXPECT_THAT(blamed_by(1, 9, {"rank 1: rank 1 of 9: x: rank 8 has died or left (its last call)"}),
              ElementsAre(8));
  EXPECT_THAT(
      blamed_by(0, 9,
                {"caught: rank 0 of 9: x: rank 3 did not arrive", "rank 0: rank 4 did not arrive"}),
      ElementsAre(3));
  EXPECT_THAT(blamed_by(0, 8, {"nothing", "rank 0: ranks 2-4, 7 did not arrive"}),
              ElementsAre(2, 3, 4, 7));
  EXPECT_THAT(blamed_by(0, 8, {"rank 0: ranks 6-99999999999, 0-1, 0-1 have died or left"}),
              ElementsAre(1, 6, 7));
}

TEST(BlamedBy, ReadsNothingInOtherLines) {
  for (const std::string& line : strange_lines()) {
    EXPECT_THAT(blamed_by(0, 5, {line}), IsEmpty()) << line.substr(0, 80);
    EXPECT_THAT(blamed_by(0, 5, {line, "rank 0: rank 1 has died or left"}), ElementsAre(1))
        << line.substr(0, 80);
  }
  EXPECT_THAT(blamed_by(0, 5, {}), IsEmpty());
}

TEST(MpirunsOwnText, IsDroppedWhenARankFailedAndShownOtherwise) {
  for (const bool show : {true, false}) {
    std::ostringstream out;
    std::ostringstream error;
    JobOutput output(out, error, {});
    output.add_other("a map that was asked for", /*is_error=*/false);
    output.add_other("advice", /*is_error=*/true);
    EXPECT_EQ(error.str(), "");
    output.release(show);
    EXPECT_EQ(error.str(), show ? "advice\n" : "");
    EXPECT_EQ(out.str(), "a map that was asked for\n");
  }
}

TEST(LogFiles, ThatCannotBeWrittenAreSaidOnce) {
  std::string folder = "/tmp/lockstep_test_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ostringstream error;
  JobOutput output(error, error, {false, true, folder + "/logs", {}, false});
  std::filesystem::remove_all(folder);
  output.add({0, Kind::line, "one"});
  output.add({1, Kind::line, "two"});
  EXPECT_THAT(error.str(), AllOf(HasSubstr("[0] one\nlockstep: cannot write " + folder),
                                 HasSubstr("the job goes on\n[1] two\n")));
  EXPECT_EQ(error.str().find("cannot write"), error.str().rfind("cannot write"));
}

TEST(Restarts, AreNotMadeForWhatWouldBeTheSameAgain) {
  for (const int code : {0, 2, 3, 10, 11, 21, 22, 23, 75, 126, 127}) {
    EXPECT_FALSE(RestartPolicy(5, RestartPolicy::Seconds(60))
                     .after(code, RestartPolicy::Seconds(999), true)
                     .restarts)
        << code;
  }
  for (const int code : {1, 7, 20, 134, 137, 139}) {
    EXPECT_TRUE(RestartPolicy(5, RestartPolicy::Seconds(60))
                    .after(code, RestartPolicy::Seconds(999), true)
                    .restarts)
        << code;
  }
}

TEST(Restarts, EndAfterTheGivenNumber) {
  RestartPolicy policy(2, RestartPolicy::Seconds(60));
  EXPECT_TRUE(policy.after(20, RestartPolicy::Seconds(999), false).restarts);
  EXPECT_TRUE(policy.after(20, RestartPolicy::Seconds(999), false).restarts);
  const auto last = policy.after(20, RestartPolicy::Seconds(999), false);
  EXPECT_FALSE(last.restarts);
  EXPECT_THAT(last.reason, HasSubstr("--max-restarts"));
}

TEST(Restarts, EndBeforeTheDeadlineOfTheWholeRun) {
  const auto now = RestartPolicy::Clock::now();
  EXPECT_TRUE(RestartPolicy(5, RestartPolicy::Seconds(60), now + std::chrono::hours(1))
                  .after(20, RestartPolicy::Seconds(999), true)
                  .restarts);
  const auto last = RestartPolicy(5, RestartPolicy::Seconds(60), now)
                        .after(20, RestartPolicy::Seconds(999), true);
  EXPECT_FALSE(last.restarts);
  EXPECT_THAT(last.reason, AllOf(HasSubstr("not started again"), HasSubstr("--timeout")));
}

/// Signals wait for this process, as they do for the launcher.
class WaitForTheNextAttempt : public ::testing::Test {
 protected:
  WaitForTheNextAttempt() {
    sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
      sigaddset(&signals, signal);
    }
    pthread_sigmask(SIG_BLOCK, &signals, &before);
  }
  ~WaitForTheNextAttempt() override { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  bool is_pending(int signal) const {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, signal) == 1;
  }
  sigset_t signals = {};
  sigset_t before = {};
};

TEST_F(WaitForTheNextAttempt, EndsAtOnceWhenSomebodyAsksToStop) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1}) {
    raise(signal);
    EXPECT_FALSE(wait_for_next_attempt(std::chrono::hours(1))) << signal;
    EXPECT_FALSE(is_pending(signal)) << signal;
  }
}

TEST_F(WaitForTheNextAttempt, DropsSigusr2WhichIsNoRequest) {
  raise(SIGUSR2);
  EXPECT_TRUE(wait_for_next_attempt(std::chrono::seconds(0)));
  EXPECT_FALSE(is_pending(SIGUSR2));
  raise(SIGUSR2);
  raise(SIGTERM);
  EXPECT_FALSE(wait_for_next_attempt(std::chrono::hours(1)));
}

TEST(Restarts, EndWhenAttemptsAreShortAndSaveNothing) {
  RestartPolicy policy(9, RestartPolicy::Seconds(60));
  const auto first = policy.after(139, RestartPolicy::Seconds(59), false);
  EXPECT_TRUE(first.restarts);
  EXPECT_GT(first.wait.count(), 1);
  EXPECT_TRUE(policy.after(139, RestartPolicy::Seconds(59), true).restarts);
  EXPECT_TRUE(policy.after(139, RestartPolicy::Seconds(59), false).restarts);
  const auto last = policy.after(139, RestartPolicy::Seconds(59), false);
  EXPECT_FALSE(last.restarts);
  EXPECT_THAT(last.reason, HasSubstr("--min-uptime"));
}

}  // namespace
}  // namespace lockstep::launcher
