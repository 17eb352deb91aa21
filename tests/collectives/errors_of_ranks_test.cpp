// Errors that all ranks throw together: merged texts, and the code of the first.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/odd_ranks.h>
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

TEST(OddRanks, AreThoseThatDifferFromMoreThanHalf) {
  EXPECT_FALSE(odd_ranks({"a", "a", "a"}).has_value());
  EXPECT_FALSE(odd_ranks({"a"}).has_value());
  const auto first = odd_ranks({"b", "a", "a"}).value();
  EXPECT_TRUE(first.has_majority);
  EXPECT_EQ(first.ranks, std::vector<int>({0}));
  EXPECT_EQ(first.first, 0U);
  EXPECT_EQ(first.reference, 1U);
  EXPECT_EQ(odd_ranks({"a", "b", "a", "c", "a"})->ranks, std::vector<int>({1, 3}));
}

TEST(OddRanks, WithoutAMajorityAreAllRanks) {
  const auto two = odd_ranks({"a", "b"}).value();
  EXPECT_FALSE(two.has_majority);
  EXPECT_EQ(two.ranks, std::vector<int>({0, 1}));
  EXPECT_EQ(two.reference, 0U);
  EXPECT_EQ(two.first, 1U);
  EXPECT_EQ(odd_ranks({"a", "b", "a", "b"})->ranks, std::vector<int>({0, 1, 2, 3}));
}

std::vector<int> blamed(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.ranks();
  }
  ADD_FAILURE() << "no Error";
  return {};
}

TEST(ErrorsOfRanks, OfOtherCallsBlameTheRankThatMadeThem) {
  testing::run_ranks(3, [](Communicator& ranks) {
    const at::Tensor tensor = at::zeros({ranks.rank() == 1 ? 5 : 4});
    EXPECT_EQ(blamed([&] { ranks.all_reduce(tensor).wait(); }), std::vector<int>({1}));
  });
}

TEST(ErrorsOfRanks, KeepTheBlameOnTheWayToOtherRanks) {
  testing::run_ranks(3, [](Communicator& ranks) {
    const Agreement agreement(ranks);
    EXPECT_EQ(blamed([&] {
                agreement.attempt("saving", [&] {
                  if (ranks.rank() == 0) {
                    throw Error("", ExitCode::diverged, {1, 2});
                  }
                });
              }),
              std::vector<int>({1, 2}));
    EXPECT_TRUE(blamed([&] {
                  agreement.attempt([] { throw Error("1 2: no ranks", ExitCode::data); });
                }).empty());
  });
}

}  // namespace
}  // namespace lockstep
