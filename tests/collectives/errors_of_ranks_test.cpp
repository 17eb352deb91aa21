// Errors that all ranks throw together: merged texts, and the code of the first.
#include <gtest/gtest.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/rank_names.h>

#include "thread_ranks.h"

namespace lockstep {

using namespace detail;

namespace {

TEST(ErrorsOfRanks, RanksAreNamedInRanges) {
  EXPECT_EQ(rank_names({2}), "rank 2");
  EXPECT_EQ(rank_names({0, 1, 2, 3}), "ranks 0-3");
  EXPECT_EQ(rank_names({0, 2, 3, 7}), "ranks 0, 2-3, 7");
}

TEST(ErrorsOfRanks, RanksThatSayTheSameAreQuotedOnce) {
  EXPECT_EQ(quoted({"a", "", "b", "a"}), "ranks 0, 3: a; rank 2: b");
  EXPECT_EQ(quoted({"", "a"}), "rank 1: a");
  EXPECT_EQ(quoted({"rank 0: a", "b"}), "rank 0: a; rank 1: b");
  EXPECT_EQ(quoted({"", ""}), "");
}

}  // namespace
}  // namespace lockstep
