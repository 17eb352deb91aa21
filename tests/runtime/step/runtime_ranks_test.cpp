// What ranks know of each other: the runtime's numbers and streams, and their words.
#include <ATen/ATen.h>
#include <lockstep/collectives/impl/rank_names.h>
#include <lockstep/runtime/step/impl/votes.h>

#include "error_of.h"
#include "runtime/across_ranks.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

TEST(RuntimeRanks, EachRankHasItsNumberAndItsShareOfTheNode) {
  EXPECT_EQ(runtime().local_size(), runtime().size());
  EXPECT_EQ(runtime().local_rank(), runtime().rank());
  EXPECT_EQ(runtime().threads(), 1);  // OMP_NUM_THREADS of this test
  EXPECT_FALSE(equal_on_all_ranks(at::full({1}, runtime().rank())));
  EXPECT_EQ(runtime().summary().empty(), !runtime().is_main());
}

TEST(RuntimeRanks, SeedRanksGivesEachRankAStreamOfItsOwn) {
  at::manual_seed(runtime().seed());
  EXPECT_TRUE(equal_on_all_ranks(at::randn({8})));
  runtime().seed_ranks();
  const at::Tensor own = at::randn({8});
  const at::Tensor all = at::empty({runtime().size(), 8});
  Communicator control = runtime().control();
  control.all_gather(all, own).wait();
  for (int rank = 1; rank < runtime().size(); ++rank) {
    EXPECT_FALSE(at::equal(all[rank], all[rank - 1]));
  }
}

TEST(RuntimeRanks, ControlMessagesHaveAnOrderOfTheirOwn) {
  Communicator gradients = runtime().communicator();
  Communicator control = runtime().control();
  const at::Tensor bucket = testing::ones({5}), word = at::ones({2}, at::kLong);
  const bool first = runtime().rank() == 0;
  Work one = first ? gradients.all_reduce(bucket) : control.all_reduce(word);
  Work other = first ? control.all_reduce(word) : gradients.all_reduce(bucket);
  bool done = false;
  while (!done) {
    const bool one_done = one.test();
    done = other.test() && one_done;
  }
  EXPECT_TRUE(at::equal(bucket, testing::full({5}, static_cast<float>(runtime().size()))));
  EXPECT_TRUE(at::equal(word, at::full({2}, int64_t{runtime().size()})));
}

TEST(Votes, AFailureOfOneRankIsKnownToAll) {
  const Agreement agreement(runtime().control());
  for (int seen_by = 0; seen_by < runtime().size(); ++seen_by) {
    Votes mine;
    mine.error = runtime().rank() == seen_by ? 1 : 0;
    mine.weight = 0.5;
    const Votes all = exchange(agreement, mine);
    EXPECT_EQ(all.error, 1);
    EXPECT_EQ(all.weight, 0.5 * runtime().size());
    EXPECT_EQ(all.stop, 0);
  }
}

TEST(Votes, RanksAtDifferentUpdatesAreNamed) {
  const Agreement agreement(runtime().control());
  Votes mine;
  mine.window = runtime().rank() == 1 ? 8 : 7;
  mine.window_squared = mine.window * mine.window;
  const std::string message = error_of([&] { exchange(agreement, mine); });
  std::vector<int> others = {0};
  for (int rank = 2; rank < runtime().size(); ++rank) {
    others.push_back(rank);
  }
  EXPECT_THAT(message, HasSubstr(rank_names(others) + ": is at window 7"));
  EXPECT_THAT(message, HasSubstr("rank 1: is at window 8"));
}

}  // namespace
}  // namespace lockstep
