// Ranks that do not make the same calls on an NCCL transport: found on the hosts.
#include "nccl_outcomes.h"
#include "test_names.h"

#include <lockstep/collectives/exceptions.h>

namespace lockstep {

using namespace detail;

namespace {

using Kind = RankOutcome::Kind;

TEST(NcclOrder, DifferentDtypesAreAnErrorOnEveryRankThatShowsBothCalls) {
  const auto result = nccl_outcomes({2}, [](NcclRank& rank, Communicator& nccl) {
    nccl.all_reduce(on_fake_device(at::ones({4}, rank.rank() == 0 ? at::kFloat : at::kHalf)))
        .wait();
  });
  expect_all(result, Kind::error, "rank 0: all_reduce #1 of Float[4]");
  expect_all(result, Kind::error, "rank 1: all_reduce #1 of Half[4]");
}

TEST(NcclOrder, AnotherOrderIsAnErrorOnEveryRank) {
  expect_all(nccl_outcomes({2},
                           [](NcclRank& rank, Communicator& nccl) {
                             const at::Tensor a = ones(4), b = ones(8);
                             nccl.all_reduce(rank.rank() == 0 ? a : b);
                             nccl.all_reduce(rank.rank() == 0 ? b : a).wait();
                           }),
             Kind::error, "the ranks do not make the same call #1");
}

TEST(NcclOrder, AnotherVerbAborts) {
  nccl_outcomes({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor tensor = ones();
    EXPECT_THROW((rank.rank() == 0 ? nccl.all_reduce(tensor) : nccl.broadcast(tensor)).wait(),
                 Error);
    EXPECT_EQ(rank.nccl->count("abort"), 1);
    EXPECT_EQ(rank.failures->load(), 1);
    rank.current.finish();  // the abort has ended what hung on the device
  });
}

TEST(NcclOrder, ADifferentRootIsFoundWhileTheCallIsInProgress) {
  NcclCase test;
  test.script = [](int, FakeNccl::Script& script) { script.polls = 3; };
  expect_all(
      nccl_outcomes(test, [](NcclRank& rank,
                             Communicator& nccl) { nccl.broadcast(ones(), rank.rank()).wait(); }),
      Kind::error, "broadcast #1 of Float[4], root 1");
}

TEST(NcclOrder, DifferentAllocationsAreAnError) {
  expect_all(
      nccl_outcomes({2}, [](NcclRank& rank,
                            Communicator& nccl) { nccl.allocate(8 + rank.rank(), at::kFloat); }),
      Kind::error, "rank 1: allocate #1 of Float[9]");
}

int occurrences(const std::string& text, const std::string& of) {
  int count = 0;
  for (size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) {
    ++count;
  }
  return count;
}

/// What is gathered would grow with the ranks.
TEST(NcclOrder, EqualCallsCostTheHostsOneSmallAllReduceEachAndGatherNothing) {
  run_nccl({3}, [](NcclRank& rank, Communicator& nccl) {
    const std::string before = rank.host.collective_log();
    nccl.all_reduce(ones()).wait();
    nccl.broadcast(ones(8)).wait();
    const std::string log = rank.host.collective_log();
    EXPECT_EQ(occurrences(log, "\n"), occurrences(before, "\n") + 2) << log;
    EXPECT_EQ(occurrences(log, "all_reduce"), 2) << log;
    EXPECT_EQ(occurrences(log, "of Long[2], max"), 2) << log;
    rank.current.finish();
  });
}

TEST(NcclOrder, OneRankOfManyIsNamedWhoeverLooksFirst) {
  const auto result = nccl_outcomes({5}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor small = ones(), large = ones(6);
    nccl.all_reduce(small);
    nccl.all_reduce(rank.rank() == 3 ? large : small);
    for (int more = 0; more < rank.rank(); ++more) {  // further ahead, each rank by another number
      nccl.all_reduce(small);
    }
    go_on_until_it_throws(nccl);
  });
  expect_all(result, Kind::error, "the ranks do not make the same call #2");
  expect_all(result, Kind::error, "rank 3: all_reduce #2 of Float[6]");
}

}  // namespace
}  // namespace lockstep
