#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/error.h>
#include <lockstep/runtime/progress.h>
#include <lockstep/runtime/table.h>

#include <algorithm>
#include <sstream>

namespace lockstep {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

/// A clock that the test moves.
class ProgressTest : public ::testing::Test {
 protected:
  ProgressOutput output(bool terminal) {
    return {&stream_, terminal, [this] { return now_; }};
  }
  std::string text() const { return stream_.str(); }
  int64_t count(char wanted) const {
    const std::string all = text();
    return std::count(all.begin(), all.end(), wanted);
  }

  std::ostringstream stream_;
  double now_ = 100.0;
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
    EXPECT_EQ(count('\n'), 0);
  }
  EXPECT_EQ(count('\r'), 4);
  EXPECT_EQ(count('\n'), 1);
  EXPECT_THAT(text(),
              HasSubstr("\rtrain  50% [############............]  2/4  1.0 it/s  eta 0:02"));
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
