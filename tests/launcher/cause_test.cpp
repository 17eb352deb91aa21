// Which rank a failed job is blamed on, and what is said of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cause/cause_text.h"
#include "cause/failure_report.h"
#include "job/restart_policy.h"

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
    found = find_cause(table, end);
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

/// The word of a rank that has waited for another in vain.
std::string waited_for(const std::vector<int>& ranks, const std::string& in = "all_reduce #45") {
  return static_cast<char>(detail::LifeSign::waited) + to_text(detail::WaitSign{ranks, in});
}

/// The word of a rank that is about to end because of an error.
std::string ends(int code, const std::string& error, bool is_shared = false,
                 const std::vector<int>& about = {}) {
  return static_cast<char>(detail::LifeSign::ends) +
         to_text(detail::EndSign{code, is_shared, error, about});
}

TEST_F(CauseOfAJob, IsTheRankThatOtherRanksWaitFor) {
  report(1, Kind::life_sign, waited_for({0}));
  report(1, Kind::status, "20");
  report(0, Kind::life_sign, waited_for({2}));
  report(0, Kind::line, "rank 0: gave up");
  report(0, Kind::status, "20");
  report(2, Kind::suspended, "19");
  report(2, Kind::suspended, "0");  // the launcher lets it go on, to end it
  report(2, Kind::ended_after_request, "137");
  EXPECT_THAT(cause(20), AllOf(HasSubstr("rank 2 did not arrive"), HasSubstr("by SIGSTOP"),
                               HasSubstr("the last lines of rank 0:\n  | rank 0: ")));
}

TEST_F(CauseOfAJob, IsNothingIfAllEndedWellWhateverTheySaidOnTheWay) {
  report(0, Kind::life_sign, "f");
  report(0, Kind::life_sign, ends(23, "no memory"));
  report(0, Kind::status, "0");
  EXPECT_FALSE(find_cause(table, {0, "", false, false}).has_value());
}

TEST_F(CauseOfAJob, OfRanksThatWaitForEachOtherIsAllOfThem) {
  for (const int rank : {0, 1, 2}) {
    report(rank, Kind::life_sign, waited_for({(rank + 1) % 3}, "barrier #" + std::to_string(rank)));
    report(rank, Kind::status, "20");
  }
  EXPECT_THAT(cause(20), HasSubstr("ranks 0-2 waited for each other, in different collectives"));
}

TEST_F(CauseOfAJob, OfRanksThatCannotReachEachOtherNamesTheirCollective) {
  report(0, Kind::life_sign, waited_for({1, 2}));
  report(0, Kind::status, "20");
  for (const int rank : {1, 2}) {
    report(rank, Kind::life_sign, waited_for({0}));
    report(rank, Kind::ended_after_request, "143");
  }
  EXPECT_THAT(cause(20), HasSubstr("ranks 0-2 waited for each other in all_reduce #45"));
}

TEST_F(CauseOfAJob, IsNoRankThatHasWaitedItselfHoweverItEnded) {
  report(0, Kind::life_sign, waited_for({1, 2}));
  report(0, Kind::status, "20");
  report(1, Kind::life_sign, waited_for({2}));
  report(1, Kind::ended_after_request, "137");
  report(2, Kind::ended_after_request, "137");
  cause(20);
  EXPECT_THAT(found->ranks, ElementsAre(2));
}

TEST_F(CauseOfAJob, OfARankThatDoesNotKnowForWhomItWaitedIsThatRank) {
  report(1, Kind::life_sign, waited_for({}));
  report(1, Kind::status, "20");
  EXPECT_THAT(cause(20), HasSubstr("rank 1 ended with exit code 20"));
  report(1, Kind::life_sign, waited_for({0}));
  report(1, Kind::life_sign, waited_for({2}));
  cause(20);
  EXPECT_THAT(found->ranks, ElementsAre(0));
}

TEST_F(CauseOfAJob, IsTheRankWhoseErrorTheOthersHaveThrown) {
  for (const int rank : {0, 2, 1}) {
    report(rank, Kind::life_sign, ends(2, "rank 1: no file", /*is_shared=*/rank != 1));
    report(rank, Kind::line, "rank " + std::to_string(rank) + ": rank 1: no file");
  }
  report(0, Kind::status, "2");
  report(2, Kind::ended_after_request, "143");
  report(1, Kind::status, "2");
  EXPECT_EQ(cause(2),
            "ranks 0-2 ended with exit code 2; the last lines of each:\n  | rank 1: no file\n"
            "rank 1 had not made a lockstep runtime\n");
  EXPECT_THAT(found->ranks, ElementsAre(1));
}

TEST_F(CauseOfAJob, IsTheRankThatAnErrorOfAllRanksIsAbout) {
  for (const int rank : {2, 0, 1}) {
    report(rank, Kind::life_sign, ends(2, "rank 1 has another model", false, {1, 7}));
    report(rank, Kind::line, "rank " + std::to_string(rank) + ": rank 1 has another model");
    report(rank, Kind::status, "2");
  }
  EXPECT_THAT(cause(2), HasSubstr("ranks 0-2 ended with exit code 2 because of rank 1; the last "
                                  "lines of ranks 0-2:\n  | rank 1 has another model\n"));
  EXPECT_THAT(found->ranks, ElementsAre(1));
  EXPECT_EQ(found->headline, "rank 2 ended with exit code 2 because of rank 1");
}

TEST_F(CauseOfAJob, IsTheRankThatAnErrorIsAboutWhereEachRankHasWordsOfItsOwn) {
  for (const int rank : {2, 1}) {
    const std::string words = "rank " + std::to_string(rank) + ": other calls";
    report(rank, Kind::life_sign, ends(2, words, false, {1}));
    report(rank, Kind::line, words);
    report(rank, Kind::status, "2");
  }
  report(0, Kind::ended_after_request, "143");
  EXPECT_THAT(cause(2), ::testing::StartsWith("rank 2 ended with exit code 2 because of rank 1; "
                                              "the last lines of rank 2:\n"));
  EXPECT_THAT(found->ranks, ElementsAre(1));
}

TEST_F(CauseOfAJob, IsEachRankThatHasTheSameErrorOfItsOwn) {
  for (const int rank : {2, 0}) {
    report(rank, Kind::life_sign, ends(2, "no such file"));
    report(rank, Kind::line, "rank " + std::to_string(rank) + ": no such file");
    report(rank, Kind::status, "2");
  }
  report(1, Kind::ended_after_request, "143");
  EXPECT_THAT(cause(2), ::testing::StartsWith("ranks 0, 2 ended with exit code 2; the last lines "
                                              "of each:\n  | no such file\n"));
  EXPECT_THAT(found->ranks, ElementsAre(0, 2));
}

TEST_F(CauseOfAJob, IsEachRankOfAnErrorThatBlamesNoneOfThem) {
  for (const int rank : {0, 1, 2}) {
    report(rank, Kind::life_sign, ends(2, "three models", false, {0, 1, 2}));
    report(rank, Kind::line, "rank " + std::to_string(rank) + ": three models");
    report(rank, Kind::status, "2");
  }
  EXPECT_THAT(cause(2), ::testing::StartsWith("ranks 0-2 ended with exit code 2; the last lines "
                                              "of each:\n  | three models\n"));
  EXPECT_THAT(found->ranks, ElementsAre(0, 1, 2));
}

TEST_F(CauseOfAJob, OfRanksThatWaitForEachOtherIsTheOneThatWaitsElsewhere) {
  for (const int rank : {0, 2}) {
    report(rank, Kind::life_sign, waited_for({1}, "all_reduce #12"));
    report(rank, Kind::status, "20");
  }
  report(1, Kind::life_sign, waited_for({0, 2}, "barrier #61"));
  report(1, Kind::status, "20");
  EXPECT_THAT(cause(20), ::testing::StartsWith("rank 1 did not arrive at all_reduce #12"));
  EXPECT_THAT(found->ranks, ElementsAre(1));
}

TEST_F(CauseOfAJob, OfRanksThatWaitForEachOtherIsTheOneThatWaitsElsewhereIfOneLeftWithIt) {
  report(0, Kind::life_sign, waited_for({2}, "all_reduce #12"));
  report(0, Kind::status, "20");
  report(1, Kind::life_sign, ends(20, "rank 2 has failed", true, {2}));
  report(1, Kind::status, "20");
  report(2, Kind::life_sign, waited_for({0, 1}, "barrier #61"));
  report(2, Kind::status, "20");
  EXPECT_THAT(cause(20), ::testing::StartsWith("rank 2 did not arrive at all_reduce #12"));
  EXPECT_THAT(found->ranks, ElementsAre(2));
}

TEST_F(CauseOfAJob, IsTheRankThatLeftWithTheOthersThatWaitedForIt) {
  for (const int rank : {1, 2}) {
    report(rank, Kind::life_sign, waited_for({0}, "all_reduce #12"));
    report(rank, Kind::status, "20");
  }
  report(0, Kind::life_sign, ends(20, "rank 1 has failed", true, {1}));
  report(0, Kind::status, "20");
  EXPECT_THAT(cause(20), ::testing::StartsWith("rank 0 did not arrive at all_reduce #12"));
  EXPECT_THAT(found->ranks, ElementsAre(0));
}

TEST_F(CauseOfAJob, OfRanksThatLeftBecauseOfEachOtherIsTheFirst) {
  for (const int rank : {1, 0}) {
    report(rank, Kind::life_sign, ends(20, "another rank has failed", true, {1 - rank}));
    report(rank, Kind::status, "20");
  }
  EXPECT_THAT(cause(20), HasSubstr("ended with exit code 20"));
  EXPECT_THAT(found->ranks, ElementsAre(1));
}

/// A rank has waited in vain for `missed` and left the step; the others left with it.
class CauseOfAJobThatLeftAStep : public CauseOfAJob {
 protected:
  std::string cause_of(int waits, const std::vector<int>& missed) {
    for (int rank = 0; rank < table.size(); ++rank) {
      if (rank == waits) {
        report(rank, Kind::life_sign, waited_for(missed, "barrier #61"));
      } else {
        report(rank, Kind::life_sign, ends(20, "another rank has failed", true, {waits}));
      }
      report(rank, Kind::status, "20");
    }
    return cause(20);
  }
};

TEST_F(CauseOfAJobThatLeftAStep, IsTheRankThatWaitedWhereMostDidNotArrive) {
  EXPECT_THAT(cause_of(1, {0, 2}), HasSubstr("rank 1 waited in barrier #61, where the others"));
  EXPECT_THAT(found->ranks, ElementsAre(1));
}

TEST_F(CauseOfAJobThatLeftAStep, IsTheRankThatDidNotArriveWhereMostWaited) {
  EXPECT_THAT(cause_of(0, {1}), HasSubstr("rank 1 did not arrive at barrier #61"));
  EXPECT_THAT(found->ranks, ElementsAre(1));
}

TEST_F(CauseOfAJob, IsKnownToMpirunAloneIfARankEndsWithoutAWordWhileItMakesItsRuntime) {
  report(0, Kind::status, "1");
  cause(1);
  EXPECT_FALSE(is_known_to_mpirun_alone(*found, table));  // a program of its own
  report(0, Kind::life_sign, "s");
  EXPECT_TRUE(is_known_to_mpirun_alone(*found, table));
  report(0, Kind::life_sign, ends(3, "no device"));
  EXPECT_FALSE(is_known_to_mpirun_alone(*found, table));
}

TEST_F(CauseOfAJob, OfADeadlineIsTheRankThatMissedIt) {
  report(1, Kind::ended_after_request, "137");
  const JobEnd end = {137, "rank 1 has not made its runtime for 6 s", false, false, {1}};
  EXPECT_EQ(cause(20, end), "rank 1 has not made its runtime for 6 s\n");
  EXPECT_THAT(found->ranks, ElementsAre(1));
}

TEST_F(CauseOfAJob, HasTheCodeOfTheRankWhoseErrorItIsNotOfThoseThatThrewItFirst) {
  report(1, Kind::life_sign, ends(1, "an exception of the program"));
  report(0, Kind::life_sign, ends(2, "rank 1: an exception of the program", /*is_shared=*/true));
  report(0, Kind::status, "2");
  const auto found = find_cause(table, {2, "", false, false});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->headline, "rank 1 ended with exit code 1");
  EXPECT_EQ(found->code, 1);
}

TEST_F(CauseOfAJob, IsTheSameInWhateverWordsItIsSaid) {
  for (const char* words : {"", "rank 0: rank 1 did not arrive", "ranks 0-1 have died or left",
                            "rank 0 of 3: all_reduce #45 failed: rank 1 has died or left"}) {
    JobOutput said(printed, printed, {});
    RankTable ranks(3);
    for (const int rank : {0, 1}) {
      ranks.add({rank, Kind::life_sign, waited_for({2})});
      ranks.add({rank, Kind::life_sign, ends(20, words)});
      said.add({rank, Kind::line, words});
      ranks.add({rank, Kind::status, "20"});
    }
    const auto cause = find_cause(ranks, {20, "", false, false});
    ASSERT_TRUE(cause.has_value());
    EXPECT_THAT(cause->ranks, ElementsAre(2)) << words;
    EXPECT_THAT(describe(*cause, ranks, said), HasSubstr("rank 2 did not arrive")) << words;
  }
}

TEST_F(CauseOfAJob, IsNeverARankThatOnlyLostItsPeer) {
  report(1, Kind::life_sign, waited_for({0}));
  report(1, Kind::status, "20");
  report(0, Kind::life_sign, "u");
  report(0, Kind::line, "rank 0: no such file");
  report(0, Kind::status, "1");
  EXPECT_EQ(cause(1), "rank 0 ended with exit code 1; its last lines:\n  | rank 0: no such file\n");
}

TEST_F(CauseOfAJob, IsTheRankWhoseErrorEndedThePeersThatWaitedForIt) {
  report(2, Kind::life_sign, ends(10, "no file"));
  report(0, Kind::life_sign, ends(10, "rank 0 of 3: barrier #4 failed: no file", true));
  report(0, Kind::status, "10");
  report(2, Kind::status, "10");
  EXPECT_THAT(cause(10), HasSubstr("rank 2 ended with exit code 10"));
}

TEST_F(CauseOfAJob, IsTheFirstOfSeveralFailures) {
  report(2, Kind::status, "139");
  report(0, Kind::status, "1");
  EXPECT_THAT(cause(139), HasSubstr("rank 2 was killed by SIGSEGV"));
}

TEST_F(CauseOfAJob, SaysHowFarTheRankWas) {
  report(0, Kind::life_sign, "s");
  report(1, Kind::status, "139");
  EXPECT_THAT(cause(139), HasSubstr("rank 1 had not made a lockstep runtime\n"));
  report(1, Kind::life_sign, "s");
  EXPECT_THAT(cause(139), HasSubstr("rank 1 was making its lockstep runtime\n"));
  report(1, Kind::life_sign, "u");
  EXPECT_THAT(cause(139), Not(HasSubstr("runtime")));
  report(1, Kind::life_sign, "e");
  EXPECT_THAT(cause(139), HasSubstr("rank 1 had left its lockstep runtime\n"));
}

TEST_F(CauseOfAJob, IsTheRankThatEndedWithoutARuntimeThoughWithCode0) {
  report(0, Kind::life_sign, "s");
  report(1, Kind::status, "0");
  EXPECT_TRUE(table.has_failure());
  report(0, Kind::ended_after_request, "143");
  report(2, Kind::ended_after_request, "143");
  EXPECT_THAT(cause(20), HasSubstr("rank 1 ended with exit code 0 before making a runtime"));
}

TEST_F(CauseOfAJob, AreTheRanksThatWereLostWithTheirHost) {
  for (const int rank : {0, 1, 2}) {
    report(rank, Kind::began, rank == 0 ? "100 a" : "200 b");
    report(rank, Kind::life_sign, "u");
  }
  report(0, Kind::life_sign, waited_for({1}));
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
    report(rank, Kind::life_sign, "u");
  }
  report(0, Kind::ended_after_request, "143");
  report(1, Kind::life_sign, waited_for({2}));
  report(1, Kind::status, "20");
  report(2, Kind::ended_after_request, "75");
  const JobEnd by_usr1{143, "", false, false};
  const JobEnd by_launcher{143, "", true, false};
  const JobEnd by_timeout{143, "the job took longer than 9 s (--timeout)", true, false};
  for (const JobEnd& end : {by_usr1, by_launcher, by_timeout}) {
    cause(75, end);
    EXPECT_TRUE(found->ended_as_asked);
  }
}

TEST_F(CauseOfAJob, OfAStopIsNoFailureOfTheRankThatLeftBeforeItHeardOfIt) {
  report(1, Kind::life_sign, "f");
  report(1, Kind::life_sign, ends(75, "saved"));
  for (const bool has_ended : {false, true}) {
    if (has_ended) {
      report(1, Kind::status, "75");
    }
    cause(75, {75, "", true, false});
    EXPECT_TRUE(found->ended_as_asked);
  }
  report(0, Kind::status, "139");
  EXPECT_THAT(cause(139, {75, "", true, false}), HasSubstr("rank 0 was killed by SIGSEGV"));
}

TEST_F(CauseOfAJob, NamesTheRankThatSavedAndLeftThoughNobodyAskedTheLauncher) {
  report(1, Kind::status, "75");
  report(0, Kind::ended_after_request, "137");
  EXPECT_THAT(cause(75, {75, "", false, false}), HasSubstr("rank 1 ended with exit code 75"));
}

TEST_F(CauseOfAJob, IsADeadlineThatPassedBeforeTheRanksWereEnded) {
  report(1, Kind::ended_after_request, "75");
  EXPECT_EQ(cause(20, {75, "rank 1 has not left its runtime for 9 s", false, true}),
            "rank 1 has not left its runtime for 9 s\n");
}

TEST_F(CauseOfAJob, KeepsTheFirstLineOfALongMessage) {
  report(0, Kind::line, "before");
  report(0, Kind::life_sign, waited_for({2}));
  report(0, Kind::line, "rank 0: all_reduce timed out");
  for (int call = 0; call < 30; ++call) {
    report(0, Kind::line, "  all_reduce #" + std::to_string(call));
  }
  report(0, Kind::status, "20");
  EXPECT_THAT(cause(20), AllOf(HasSubstr("rank 0: all_reduce timed out"), HasSubstr("#29\n"),
                               Not(HasSubstr("before"))));
}

TEST_F(CauseOfAJob, IsWrittenAsJson) {
  report(1, Kind::began, "200 b");
  report(0, Kind::life_sign, "p/runs/step-2");
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
    report(rank, Kind::life_sign, "u");
    report(rank, Kind::line, "rank " + std::to_string(rank) + ": ready");
  }
  report(2, Kind::status, "137");
  report(0, Kind::ended_after_request, "143");
  report(1, Kind::ended_after_request, "137");
  EXPECT_THAT(cause(137), ::testing::StartsWith("rank 2 was killed by SIGKILL; its last lines"));
}

TEST_F(CauseOfAJob, OfAProgramWithoutLockstepIsNotThatOfRanksThatPrintedTheSame) {
  for (const int rank : {0, 1, 2}) {
    report(rank, Kind::line, "ready");
  }
  report(2, Kind::status, "7");
  report(0, Kind::ended_after_request, "143");
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

/// What programs may print, whoever is to blame.
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
          "rank 0: rank 2 did not arrive",
          "rank 0 of 3: barrier #1 timed out after 5.0 s: ranks 0-2 have died or left",
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
  report(0, Kind::life_sign, waited_for({1}));
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

TEST_F(CauseOfAJob, OfAProgramWithoutSignsIsTheRankThatEndedWhateverItPrints) {
  for (const std::string& line : strange_lines()) {
    report(0, Kind::line, line);
  }
  report(0, Kind::status, "20");
  EXPECT_THAT(cause(20), ::testing::StartsWith("rank 0 ended with exit code 20"));
  EXPECT_THAT(found->ranks, ElementsAre(0));
}

TEST(LifeSigns, TakeAnyTextOfAWait) {
  const auto read = [](const std::string& text) { return detail::parse_wait_sign(text); };
  const std::vector<int> ranks = {0, 2, 3, 4, 7};
  EXPECT_EQ(read(to_text(detail::WaitSign{ranks, "barrier #1 of Byte[0]"})).ranks, ranks);
  EXPECT_EQ(read("0,2-4,7 barrier #1").collective, "barrier #1");
  EXPECT_EQ(read(" barrier #1").collective, "barrier #1");
  for (const char* strange : {"", " x", "-1 x", "4-2 x", "3,3 x", "0-99999999999 x", "0-2000000000",
                              "7-", ",", "0;1 x", "rank 1 x"}) {
    EXPECT_THAT(read(strange).ranks, IsEmpty()) << strange;
  }
}

TEST(LifeSigns, OfManyRanksFitOnePieceOfOutput) {
  detail::WaitSign sign;
  for (int rank = 0; rank < 100000; rank += 2) {
    sign.ranks.push_back(rank);
  }
  const std::string text = to_text(sign);
  EXPECT_LT(text.size(), 2048U);
  EXPECT_THAT(detail::parse_wait_sign(text).ranks.size(), ::testing::Gt(100U));
  EXPECT_LT(to_text(detail::EndSign{2, false, std::string(100000, 'x')}).size(), 2048U);
}

TEST(LifeSigns, TakeAnyTextOfAnEnd) {
  const auto sign = detail::parse_end_sign(to_text(detail::EndSign{23, true, "no memory"}));
  EXPECT_EQ(sign.code, 23);
  EXPECT_TRUE(sign.is_shared);
  EXPECT_EQ(sign.text, "no memory");
  EXPECT_THAT(sign.ranks, IsEmpty());
  const auto about =
      detail::parse_end_sign(to_text(detail::EndSign{2, false, "3 of 4", {0, 2, 3}}));
  EXPECT_EQ(about.text, "3 of 4");
  EXPECT_THAT(about.ranks, ElementsAre(0, 2, 3));
  for (const char* strange : {"", "x", "-3o", "99999999999999oX", "s"}) {
    EXPECT_EQ(detail::parse_end_sign(strange).code, 0) << strange;
  }
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
