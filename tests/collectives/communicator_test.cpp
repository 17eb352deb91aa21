// What holds for a Communicator whatever carries it.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <lockstep/collectives/exceptions.h>

#include "test_names.h"
#include "thread_ranks.h"

namespace lockstep {
namespace {

TEST(Communicator, CopiesAreTheSame) {
  run_ranks(2, [](Communicator& ranks) {
    Communicator copy = ranks;
    copy.barrier().wait();
    ranks.all_reduce(at::ones({4})).wait();
    EXPECT_THAT(copy.collective_log(), HasSubstr("all_reduce #2 of Float[4]"));
    EXPECT_EQ(copy.rank(), ranks.rank());
  });
}

TEST(Communicator, OneThatSplitGaveNobodySaysWhyItCannotBeUsed) {
  Communicator none = Communicator::solo().split(-1);
  EXPECT_FALSE(none.valid());
  const at::Tensor tensor = at::ones({4});
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { none.rank(); }, [&] { static_cast<void>(none.all_reduce(tensor)); },
           [&] { static_cast<void>(none.barrier()); }, [&] { static_cast<void>(none.split(0)); },
           [&] { static_cast<void>(none.allocate(4, at::kFloat)); }}) {
    try {
      call();
      ADD_FAILURE() << "a call went through";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("its color was negative; ask valid() first"));
    }
  }
  EXPECT_THROW(Communicator(nullptr), Error);
}

TEST(Communicator, OfOneRankReturnsAtOnceAndChangesNothing) {
  Communicator alone = Communicator::solo();
  EXPECT_EQ(alone.size() + alone.rank() + alone.local_size() + alone.local_rank(), 2);
  const at::Tensor input = at::arange(6, at::kFloat);
  const at::Tensor tensor = input.clone();
  EXPECT_TRUE(alone.all_reduce(tensor, ReduceOp::avg().predivide(3)).test());
  EXPECT_TRUE(alone.broadcast(tensor).test());
  EXPECT_TRUE(alone.barrier().test());
  EXPECT_TRUE(at::equal(tensor, input));
  const at::Tensor share = at::zeros({6}), all = at::zeros({2, 3});
  EXPECT_TRUE(alone.reduce_scatter(share, input).test());
  EXPECT_TRUE(alone.all_gather(all, input).test());
  EXPECT_TRUE(at::equal(share, input));
  EXPECT_TRUE(at::equal(all, input.view({2, 3})));
  EXPECT_EQ(alone.all_gather_bytes("node17"), std::vector<std::string>{"node17"});
  EXPECT_EQ(alone.split(3).size(), 1);
}

TEST(Communicator, ProgressAloneCompletesWhatIsPending) {
  run_ranks(3, [](Communicator& ranks) {
    const at::Tensor tensor = at::ones({5000});
    const Work pending = ranks.all_reduce(tensor);
    while (ranks.collective_log().find("complete") == std::string::npos) {
      ranks.progress();
    }
    EXPECT_TRUE(at::equal(tensor, at::full({5000}, 3.0F)));
  });
}

TEST(Communicator, TestThrowsWhatWaitThrows) {
  const auto result = testing::outcomes(2, [](Communicator& ranks) {
    Work work = ranks.all_reduce(at::ones({4 + ranks.rank()}));
    while (!work.test()) {
    }
  });
  for (const testing::RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, testing::RankOutcome::Kind::error);
    EXPECT_THAT(rank.message, HasSubstr("the ranks do not make the same call #1"));
  }
}

}  // namespace
}  // namespace lockstep
