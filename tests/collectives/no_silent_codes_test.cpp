// Errors that all ranks throw together: merged texts, and the code of the first.
#include <gtest/gtest.h>
#include <lockstep/collectives/rank_names.h>
#include <lockstep/collectives/shared_error.h>

#include "thread_ranks.h"

namespace lockstep {
namespace {

TEST(NoSilentResult, N11_RanksAreNamedInRanges) {
  EXPECT_EQ(rank_names({2}), "rank 2");
  EXPECT_EQ(rank_names({0, 1, 2, 3}), "ranks 0-3");
  EXPECT_EQ(rank_names({0, 2, 3, 7}), "ranks 0, 2-3, 7");
}

TEST(NoSilentResult, N11_RanksThatSayTheSameAreQuotedOnce) {
  EXPECT_EQ(quoted({"a", "", "b", "a"}), "ranks 0, 3: a; rank 2: b");
  EXPECT_EQ(quoted({"", "a"}, " of 2"), "rank 1 of 2: a");
  EXPECT_EQ(quoted({"", ""}), "");
}

TEST(NoSilentResult, N11_TheCodeIsThatOfTheFirstRankThatFailed) {
  const auto ranks = testing::outcomes(3, [](Communicator& communicator) {
    const int rank = communicator.rank();
    try {
      if (rank == 0) {
        throw_on_every_rank(communicator, std::nullopt);
      }
      const Error mine(rank == 1 ? "" : "no disk",
                       rank == 1 ? ExitCode::data : ExitCode::out_of_memory);
      throw_on_every_rank(communicator, mine, std::make_exception_ptr(mine));
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "rank 1: no message; rank 2: no disk");
      EXPECT_EQ(error.code(), ExitCode::data);
    }
  });
  for (const testing::RankOutcome& rank : ranks) {
    EXPECT_EQ(rank.kind, testing::RankOutcome::Kind::returned) << rank.message;
  }
}

}  // namespace
}  // namespace lockstep
