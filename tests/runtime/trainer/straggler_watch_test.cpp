// Which rank is called slow. All times are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/trainer/impl/straggler_watch.h>

#include "collectives/thread_ranks.h"
#include "test_names.h"

namespace lockstep::detail {
namespace {

TEST(StragglerWatch, NamesTheSlowRankWithItsRatioAndItsWait) {
  EXPECT_EQ(describe_straggler({{5.0, 7.1}, {5.2, 6.9}, {4.8, 7.3}, {12.0, 0.1}}, 100),
            "rank 3 needs 2.4x the median time to reach the all-reduce, over the last 100 updates: "
            "120.0 ms instead of 50.0 ms an update. It waits least, 1 % of its time; the median "
            "rank waits 58 %. Look at that rank's host, its other load, and its data");
}

TEST(StragglerWatch, OfTwoRanksComparesTheSlowWithTheFast) {
  EXPECT_THAT(describe_straggler({{3.0, 0.0}, {1.0, 2.0}}, 100),
              AllOf(HasSubstr("rank 0 needs 3.0x"), HasSubstr("30.0 ms instead of 10.0 ms")));
}

TEST(StragglerWatch, SaysNothingOfRanksThatAreAlike) {
  EXPECT_EQ(describe_straggler({{5.0, 1.0}, {5.5, 0.5}, {7.4, 0.1}}, 100), "");
  EXPECT_EQ(describe_straggler({{5.0, 1.0}}, 100), "");
  EXPECT_EQ(describe_straggler({{0.0, 0.0}, {0.0, 0.0}}, 100), "");
}

TEST(StragglerWatch, SaysNothingOfDifferencesOfLessThan5MsAnUpdate) {
  EXPECT_EQ(describe_straggler({{0.1, 0.5}, {0.1, 0.5}, {0.59, 0.0}}, 100), "");
  EXPECT_NE(describe_straggler({{0.1, 0.5}, {0.1, 0.5}, {0.61, 0.0}}, 100), "");
}

TEST(StragglerWatch, SaysNothingIfAnotherRankWaitsLess) {
  EXPECT_EQ(describe_straggler({{5.0, 0.1}, {5.0, 7.0}, {12.0, 0.5}}, 100), "");
}

TEST(SlowestRank, IsThatWithTheLongestTimeRelativeToTheMedian) {
  const auto found = slowest_of({{5.0, 7.1}, {4.0, 6.9}, {12.0, 0.1}, {6.0, 7.3}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rank, 2);
  EXPECT_DOUBLE_EQ(found->ratio, 12.0 / 5.0);
  EXPECT_EQ(slowest_of({{1.0, 0.0}, {1.0, 0.0}})->rank, 0);
  EXPECT_FALSE(slowest_of({{5.0, 1.0}}).has_value());
  EXPECT_FALSE(slowest_of({{0.0, 1.0}, {0.0, 1.0}}).has_value());
}

TEST(StragglerWatch, SaysTheSameOnEveryRankAndOnlyWhatIsNew) {
  testing::run_ranks(3, [](Communicator& ranks) {
    StragglerWatch watch;
    const auto period = [&](int slow) {
      EXPECT_FALSE(watch.is_due());
      for (int64_t update = 0; update < StragglerWatch::kUpdates; ++update) {
        const bool mine = ranks.rank() == slow;
        watch.add(mine ? RankTimes{0.3, 0.0} : RankTimes{0.1, 0.2});
      }
      EXPECT_TRUE(watch.is_due());
      return watch.compare(ranks);
    };
    EXPECT_THAT(period(1), HasSubstr("rank 1 needs 3.0x"));
    EXPECT_EQ(period(1), "");
    EXPECT_THAT(period(2), HasSubstr("rank 2 needs 3.0x"));
    EXPECT_EQ(period(-1), "");
    EXPECT_THAT(period(2), HasSubstr("rank 2 needs 3.0x"));
  });
}

}  // namespace
}  // namespace lockstep::detail
