#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/activity.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "mpi_nodes.h"
#include "mpi_world.h"
#include "test_names.h"
#include "verbs.h"

namespace lockstep {
namespace {

/// Calls `check` on the ranks in every layout; on several hosts, in the layout that they have.
void in_every_layout(const std::function<void(Communicator&, const std::string&)>& check) {
  if (std::getenv("LOCKSTEP_TEST_NODES") != nullptr) {
    check(world(), "the hosts of this test");
    return;
  }
  for (const Layout& layout : all_layouts(world().size())) {
    Communicator ranks = on_nodes(layout);
    check(ranks, text_of(layout));
  }
}

/// Numbers whose sum depends on the order, in 16 bits, too: the large ones of ranks 0 and 2 cancel.
at::Tensor values_of(int rank, int64_t numel, at::ScalarType dtype) {
  at::Tensor values = testing::uneven_numbers(rank, numel) * 0.01;
  if (rank == 0 || rank == 2) {
    values.slice(0, 0, numel, 3).add_(rank == 0 ? 30000.0 : -30000.0);
  }
  return values.to(dtype);
}

/// In rank order, in fp32 where the elements have 16 bits, with one rounding at the end.
at::Tensor in_rank_order(int64_t numel, at::ScalarType dtype, ReduceOp op) {
  const at::ScalarType sum_dtype = at::elementSize(dtype) == 2 ? at::kFloat : dtype;
  const bool scales = op.kind() == ReduceOp::Kind::avg;
  const at::Tensor before = at::full({numel}, 1.0 / op.predivide_factor(), sum_dtype);
  at::Tensor sum;
  for (int rank = 0; rank < world().size(); ++rank) {
    at::Tensor values = values_of(rank, numel, dtype).to(sum_dtype);
    values = scales ? values * before : values;
    sum = rank == 0                          ? values
          : op.kind() == ReduceOp::Kind::max ? at::maximum(sum, values)
          : op.kind() == ReduceOp::Kind::min ? at::minimum(sum, values)
                                             : sum + values;
  }
  if (scales) {
    sum = sum / at::full({numel}, world().size() / op.predivide_factor(), sum_dtype);
  }
  return sum.to(dtype);
}

void expect_same_bits(const std::vector<int64_t>& sizes, const std::vector<at::ScalarType>& dtypes,
                      const std::vector<ReduceOp>& ops) {
  std::string wrong;
  in_every_layout([&](Communicator& ranks, const std::string& layout) {
    for (int64_t numel : sizes) {
      for (at::ScalarType dtype : dtypes) {
        for (const ReduceOp& op : ops) {
          const at::Tensor expected = in_rank_order(numel, dtype, op);
          const at::Tensor own = values_of(ranks.rank(), numel, dtype);
          at::Tensor shared = ranks.allocate(numel, dtype);
          shared.copy_(own);
          ranks.all_reduce(shared, op).wait();
          ranks.all_reduce(own, op).wait();
          if (!same_bits(shared, expected) || !same_bits(own, expected)) {
            wrong += c10::str("\n", layout, ": ", dtype, "[", numel, "]");
          }
        }
      }
    }
  });
  EXPECT_EQ(wrong, "");
}

const std::vector<ReduceOp> kOps = {ReduceOp::sum(), ReduceOp::avg(), ReduceOp::avg().predivide(3),
                                    ReduceOp::max(), ReduceOp::min()};

TEST(NodeLayouts, SmallSumsHaveTheSameBitsWhereverTheRanksAre) {
  expect_same_bits({4097}, {at::kFloat, at::kHalf}, kOps);
  expect_same_bits({65}, {at::kDouble, at::kBFloat16, at::kFloat}, {ReduceOp::sum()});
}

TEST(NodeLayouts, LargeSumsHaveTheSameBitsWhereverTheRanksAre) {
  expect_same_bits({70003}, {at::kFloat, at::kHalf},
                   {ReduceOp::sum(), ReduceOp::avg().predivide(3), ReduceOp::max()});
}

TEST(NodeLayouts, SumsOfManyChunksHaveTheSameBitsWhereverTheRanksAre) {
  expect_same_bits({1100003}, {at::kFloat}, {ReduceOp::avg()});
}

TEST(NodeLayouts, ReduceScatterHasTheSameBitsWhereverTheRanksAre) {
  in_every_layout([](Communicator& ranks, const std::string& layout) {
    for (at::ScalarType dtype : {at::kFloat, at::kHalf}) {
      const int64_t share = 30011;
      const int64_t numel = share * ranks.size();
      const at::Tensor output = at::empty({share}, dtype);
      ranks.reduce_scatter(output, values_of(ranks.rank(), numel, dtype), ReduceOp::avg()).wait();
      const at::Tensor expected = in_rank_order(numel, dtype, ReduceOp::avg())
                                      .narrow(0, share * ranks.rank(), share)
                                      .contiguous();
      EXPECT_TRUE(same_bits(output, expected)) << layout << ": " << dtype;
      const at::Tensor buffer = ranks.allocate(numel, dtype);
      buffer.copy_(values_of(ranks.rank(), numel, dtype));
      const at::Tensor own = buffer.narrow(0, share * ranks.rank(), share);
      ranks.reduce_scatter(own, buffer, ReduceOp::avg()).wait();
      EXPECT_TRUE(same_bits(own.clone(), expected)) << layout << ", in place: " << dtype;
    }
  });
}

TEST(NodeLayouts, AllGatherHasTheSameBytesWhereverTheRanksAre) {
  in_every_layout([](Communicator& ranks, const std::string& layout) {
    for (const int64_t numel : {1, 33, 400003}) {  // the last one: several chunks
      std::vector<at::Tensor> parts;
      for (int rank = 0; rank < ranks.size(); ++rank) {
        parts.push_back(values_of(rank, numel, at::kFloat));
      }
      const at::Tensor expected = at::cat(parts);
      const at::Tensor output = at::empty_like(expected);
      ranks.all_gather(output, parts[static_cast<size_t>(ranks.rank())]).wait();
      EXPECT_TRUE(same_bits(output, expected)) << layout << ": " << numel;
      output.zero_();
      const at::Tensor own = output.narrow(0, ranks.rank() * numel, numel);
      own.copy_(parts[static_cast<size_t>(ranks.rank())]);
      ranks.all_gather(output, own).wait();
      EXPECT_TRUE(same_bits(output, expected)) << layout << ", in place: " << numel;
    }
  });
}

/// What ranks say that wait for the last one, which does not come.
std::string verdict_on_the_last(const Layout& layout) {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(5);
  Communicator ranks = on_nodes(layout, options);
  ranks.barrier().wait();
  std::string message;
  if (ranks.rank() + 1 == ranks.size()) {
    detail::note_activity("forward of micro-batch", 2);
  } else {
    try {
      ranks.all_reduce(at::zeros({42})).wait();
    } catch (const CommunicationError& error) {
      message = error.what();
    }
  }
  world().barrier().wait();
  return message;
}

TEST(NodeLayouts, ALateRankOfAnotherNodeIsNamedByItsNeighbour) {
  if (world().size() < 4 || std::getenv("LOCKSTEP_TEST_NODES") != nullptr) {
    return;  // needs two ranks on each of two nodes of one host
  }
  const std::string message = verdict_on_the_last({0, 0, 1, 1});
  if (world().rank() < 3) {
    EXPECT_NE(
        message.find("s: rank 3 did not arrive (its last call was #1); in a wait for barrier #"),
        std::string::npos)
        << message;
  }
}

TEST(NodeLayouts, RanksOfAPartKnowTheirNumbersInTheJob) {
  const int last = world().size() - 1;
  std::vector<int> expected(static_cast<size_t>(last) + 1);
  std::iota(expected.rbegin(), expected.rend(), 0);
  EXPECT_EQ(
      detail::MpiComm::split(detail::load_mpi().world(), 0, last - world().rank()).job_ranks(),
      expected);
}

TEST(NodeLayouts, ASilentRankOfAnotherNodeIsNamed) {
  if (world().size() != 3 || std::getenv("LOCKSTEP_TEST_NODES") != nullptr) {
    return;
  }
  const std::string message = verdict_on_the_last({0, 0, 1});
  if (world().rank() < 2) {
    EXPECT_NE(message.find("rank 2, which is on another node, gave no sign of life"),
              std::string::npos)
        << message;
  }
}

TEST(NodeLayouts, MemoryThatMpiMayStillUseOutlivesACommunicatorThatAnExceptionDestroys) {
  if (std::getenv("LOCKSTEP_TEST_NODES") != nullptr) {
    return;  // the layout is given
  }
  bool freed = false;
  std::vector<char> bytes(size_t{1} << 20);
  world().barrier().wait();
  try {
    Layout apart(static_cast<size_t>(world().size()));
    std::iota(apart.begin(), apart.end(), 0);
    const Communicator ranks = on_nodes(apart);
    if (ranks.rank() == 0) {  // no other rank takes part
      const auto note = [&](void*) { freed = true; };
      static_cast<void>(
          ranks.broadcast(at::from_blob(bytes.data(), {int64_t{1} << 20}, note, at::kByte), 0));
    }
    throw std::runtime_error("the job dies");
  } catch (const std::runtime_error&) {
    EXPECT_FALSE(freed);
  }
  new std::vector<char>(std::move(bytes));  // as the memory that the broadcast keeps
  world().barrier().wait();
}

}  // namespace
}  // namespace lockstep
