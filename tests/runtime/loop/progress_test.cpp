#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/progress.h>
#include <lockstep/runtime/table.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "test_names.h"

namespace lockstep {
namespace {

/// A clock that the test moves.
class ProgressTest : public ::testing::Test {
 protected:
  ProgressOutput output(bool terminal) {
    return {&stream_, terminal, [this] { return now_; }, [this] { return columns_; }};
  }
  /// What the terminal shows: the text behind the last return of each line, longest first.
  size_t longest_line() const {
    size_t longest = 0;
    std::istringstream lines(text());
    for (std::string line; std::getline(lines, line);) {
      std::istringstream drawn(line);
      for (std::string one; std::getline(drawn, one, '\r');) {
        longest = std::max(longest, one.size());
      }
    }
    return longest;
  }
  std::string text() const { return stream_.str(); }
  int64_t count(char wanted) const {
    const std::string all = text();
    return std::count(all.begin(), all.end(), wanted);
  }

  std::ostringstream stream_;
  double now_ = 100.0;
  int columns_ = 80;
};

TEST_F(ProgressTest, PlainOutputIsALineForEachTwentieth) {
  {
    Progress progress("train", 1000, output(false));
    for (int64_t step = 1; step <= 1000; ++step) {
      now_ += 0.01;
      progress.show(step);
    }
  }
  EXPECT_EQ(count('\n'), 21);  // the first step, then 5 % ... 100 %
  EXPECT_EQ(count('\r'), 0);
  EXPECT_THAT(text(), HasSubstr("train   5%  50/1000  100.0 it/s  eta 0:10\n"));
  EXPECT_THAT(text(), EndsWith("train 100%  1000/1000  100.0 it/s  in 0:10\n"));
}

TEST_F(ProgressTest, ValuesAreAskedForWhereTheyArePrinted) {
  int asked = 0;
  Progress progress("train", 1000, output(false));
  for (int64_t step = 1; step <= 1000; ++step) {
    progress.show(step, [&] {
      ++asked;
      return Progress::Values{{"loss", 0.25}};
    });
  }
  EXPECT_EQ(asked, 21);
  EXPECT_THAT(text(), HasSubstr("loss 0.25\n"));
}

TEST_F(ProgressTest, RanksThatPrintNothingAskForNothing) {
  Progress progress("train", 2, ProgressOutput{nullptr, false, [this] { return now_; }});
  progress.show(1, []() -> Progress::Values { throw std::logic_error("asked"); });
}

TEST_F(ProgressTest, ShortLoopsPrintEachStepOnce) {
  Progress progress("epoch", 3, output(false));
  for (int64_t step = 1; step <= 3; ++step) {
    progress.show(step);
    progress.show(step);
  }
  EXPECT_EQ(count('\n'), 3);
}

TEST_F(ProgressTest, ATerminalGetsOneLineThatIsRedrawn) {
  {
    Progress progress("train", 4, output(true));
    for (int64_t step = 1; step <= 4; ++step) {
      now_ += 1.0;
      progress.show(step);
    }
    EXPECT_THAT(text(), HasSubstr("in 0:04"));
    EXPECT_THAT(text(), EndsWith("\n"));
    progress.show(4);
  }
  EXPECT_EQ(count('\r'), 4);
  EXPECT_EQ(count('\n'), 1);
  EXPECT_THAT(text(),
              HasSubstr("\rtrain  50% [############............]  2/4  1.0 it/s  eta 0:02"));
}

TEST_F(ProgressTest, ALoopThatEndsEarlyEndsItsLine) {
  {
    Progress progress("train", 4, output(true));
    progress.show(1);
    EXPECT_EQ(count('\n'), 0);
  }
  EXPECT_EQ(count('\n'), 1);
}

TEST_F(ProgressTest, NoLineIsLongerThanTheTerminal) {
  for (const int columns : {200, 80, 60, 40, 20, 8, 1}) {
    columns_ = columns;
    stream_.str("");
    Progress progress("train", 468, output(true));
    for (int64_t step = 1; step <= 468; ++step) {
      now_ += 1.0;
      progress.show(step, {{"loss", 0.4126}, {"scale", 65536}, {"grad norm", 1.25e-5}});
    }
    EXPECT_LT(longest_line(), static_cast<size_t>(std::max(columns, 2))) << columns;
    EXPECT_EQ(count('\n'), 1) << columns;
  }
}

TEST_F(ProgressTest, TheBarBecomesShorterBeforeTheTextIsCut) {
  Progress progress("train", 4, output(true));
  columns_ = 48;
  progress.show(2);
  EXPECT_THAT(text(), EndsWith("\rtrain  50% [#########..........]  2/4  0.0 it/s"));
  columns_ = 24;
  now_ += 1.0;
  progress.show(3);
  EXPECT_THAT(text(), HasSubstr("\rtrain  75%  3/4  3.0 it"));
}

TEST_F(ProgressTest, ATerminalThatIsMadeNarrowerGetsShorterLines) {
  Progress progress("train", 10, output(true));
  progress.show(1);
  stream_.str("");
  columns_ = 30;
  now_ += 1.0;
  progress.show(2);
  EXPECT_EQ(longest_line(), 29U);
}

TEST_F(ProgressTest, ALabelIsCutBetweenCharacters) {
  columns_ = 4;
  Progress progress("\u00fc\u00fc\u00fc\u00fc", 10, output(true));
  progress.show(1);
  EXPECT_EQ(text(), "\r\u00fc\u00fc\u00fc");
}

TEST_F(ProgressTest, PlainOutputIsALineForEveryNIterations) {
  Progress progress("train", 1000, output(false));
  progress.log_every(300);
  for (int64_t step = 1; step <= 1000; ++step) {
    now_ += 30.0;
    progress.show(step);
  }
  EXPECT_EQ(count('\n'), 5);  // the first step, 300, 600, 900 and the last
  EXPECT_THAT(text(), HasSubstr("  600/1000  "));
  EXPECT_THROW(progress.log_every(0), Error);
}

TEST_F(ProgressTest, PlainOutputIsAlsoALineAMinute) {
  Progress progress("train", 100000, output(false));
  for (int64_t step = 1; step <= 10; ++step) {
    now_ += 20.0;
    progress.show(step);
  }
  EXPECT_EQ(count('\n'), 4);  // the first step, 4, 7 and 10
}

TEST_F(ProgressTest, StandardOutputAsksTheEnvironmentForItsColumns) {
  ASSERT_EQ(setenv("COLUMNS", "33", 1), 0);
  const ProgressOutput output = ProgressOutput::standard(true);
  ::testing::internal::CaptureStdout();  // no terminal
  const int columns = output.columns();
  ::testing::internal::GetCapturedStdout();
  ASSERT_EQ(unsetenv("COLUMNS"), 0);
  EXPECT_EQ(columns, 33);
}

TEST_F(ProgressTest, ATerminalIsAskedForItsColumns) {
  int terminal = -1;
  int other = -1;
  const winsize size = {24, 57, 0, 0};
  ASSERT_EQ(openpty(&terminal, &other, nullptr, nullptr, &size), 0);
  const int standard = dup(STDOUT_FILENO);
  ASSERT_EQ(dup2(other, STDOUT_FILENO), STDOUT_FILENO);
  const int columns = ProgressOutput::standard(true).columns();
  ASSERT_EQ(dup2(standard, STDOUT_FILENO), STDOUT_FILENO);
  for (const int descriptor : {terminal, other, standard}) {
    close(descriptor);
  }
  EXPECT_EQ(columns, 57);
}

TEST_F(ProgressTest, ATerminalIsRedrawnAtMostTenTimesASecond) {
  Progress progress("train", 100000, output(true));
  for (int64_t step = 1; step <= 1000; ++step) {
    now_ += 0.001;
    progress.show(step);
  }
  EXPECT_GE(count('\r'), 9);
  EXPECT_LE(count('\r'), 11);
}

TEST_F(ProgressTest, TheLastStepIsAlwaysShown) {
  Progress progress("train", 2, output(true));
  progress.show(1);
  progress.show(2);  // no time has passed
  EXPECT_THAT(text(), HasSubstr("100%"));
}

TEST_F(ProgressTest, AShorterLineWipesALongerOne) {
  Progress progress("train", 10, output(true));
  progress.show(1, {{"loss", 1.2345678}});
  const size_t longer = text().size() - 1;
  now_ += 1.0;
  progress.show(2);
  EXPECT_GE(text().size() - 1 - longer - 1, longer);
}

TEST_F(ProgressTest, ShowsTheValuesOfTheLoop) {
  Progress progress("train", 10, output(false));
  progress.show(1, {{"loss", 0.41264}, {"scale", 65536}, {"lr", 1.25e-5}});
  EXPECT_THAT(text(), EndsWith("  loss 0.4126  scale 65536  lr 1.25e-05\n"));
}

TEST_F(ProgressTest, LongRunsShowHours) {
  Progress progress("train", 100, output(false));
  now_ += 100.0;
  progress.show(1);
  EXPECT_THAT(text(), HasSubstr("eta 2:45:00"));
}

TEST_F(ProgressTest, OtherRanksPrintNothing) {
  ::testing::internal::CaptureStdout();
  {
    Progress progress("train", 10, false);
    progress.show(1);
    progress.show(10);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST_F(ProgressTest, RankZeroPrintsPlainLinesIntoAFile) {
  ::testing::internal::CaptureStdout();
  {
    Progress progress("train", 10, true);
    progress.show(10);
  }
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(printed, HasSubstr("train 100%"));
  EXPECT_THAT(printed, Not(HasSubstr("\r")));
}

TEST_F(ProgressTest, TheRateOfAResumedLoopCountsItsOwnIterations) {
  Progress progress("train", 100, output(false));
  progress.begin_at(60);
  now_ += 10.0;
  progress.show(70);
  EXPECT_THAT(text(), HasSubstr("70/100  1.0 it/s  eta 0:30"));
  EXPECT_THROW(progress.begin_at(-1), Error);
}

TEST_F(ProgressTest, RefusesAnEmptyLoop) {
  EXPECT_THROW(Progress("train", 0, output(false)), Error);
}

TEST(FormatNumber, IntegersInFullOthersWithFourDigits) {
  EXPECT_EQ(format_number(16777216.0), "16777216");
  EXPECT_EQ(format_number(0.0), "0");
  EXPECT_EQ(format_number(-3.14159), "-3.142");
  EXPECT_EQ(format_number(1e20), "1e+20");
}

TEST(Table, AlignsColumnsAndPutsNumbersToTheRight) {
  const std::string text = Table({"result", "value", "unit"})
                               .row({"accuracy", "0.891"})
                               .row({"throughput", "12345", "images/s"})
                               .text();
  EXPECT_EQ(text,
            "result      value  unit\n"
            "----------  -----  --------\n"
            "accuracy    0.891\n"
            "throughput  12345  images/s\n");
}

TEST(Table, WithoutHeaderIsRowsOnly) {
  EXPECT_EQ(Table().row({"ranks", "2"}).row({"device", "cpu"}).text(),
            "ranks   2\n"
            "device  cpu\n");
}

}  // namespace
}  // namespace lockstep
