// Memory that the ranks of a node have together, and an Arena over it, on every layout of nodes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/impl/node_memory.h>
#include <lockstep/runtime/storage/impl/arena.h>
#include <lockstep/runtime/storage/impl/replicas.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "mpi_nodes.h"

namespace lockstep {

using namespace detail;

namespace {

using testing::Layout;
using testing::world;

constexpr int64_t kElements = 40'000;  // some pages

/// Of four ranks not all, to save time.
std::vector<Layout> layouts() {
  return world().size() < 4 ? testing::all_layouts(world().size())
                            : std::vector<Layout>{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}};
}

std::shared_ptr<NodeMemory> made(const Communicator& ranks) {
  auto memory = NodeMemory::make(ranks, kElements * sizeof(float), "test");
  EXPECT_NE(memory, nullptr);
  return memory;
}

TEST(NodeMemory, IsSharedByTheRanksOfANodeInOrder) {
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(testing::text_of(layout));
    const Communicator ranks = testing::on_nodes(layout);
    const auto memory = made(ranks);
    const at::Tensor published = memory->published(0, kElements, at::kFloat);
    const at::Tensor own = memory->own(0, kElements, at::kFloat);
    const int writer = memory->ranks().back();
    if (ranks.rank() == writer) {
      published.fill_(static_cast<float>(writer + 1));
    }
    ranks.barrier().wait();
    EXPECT_TRUE(own.eq(writer + 1).all().item<bool>());
    EXPECT_EQ(memory->find_written(), std::nullopt);
    ranks.barrier().wait();
  }
}

TEST(NodeMemory, AWriteStaysWithItsRankAndIsFound) {
  const Communicator ranks = testing::on_nodes(Layout(static_cast<size_t>(world().size()), 0));
  const auto memory = made(ranks);
  const at::Tensor own = memory->own(0, kElements, at::kFloat);
  if (ranks.rank() == 0) {
    own[30'000] = 1.0;
    EXPECT_EQ(memory->find_written(), size_t{120'002});  // 1.0F ends with 0x80, 0x3f
  }
  ranks.barrier().wait();
  if (ranks.rank() != 0) {
    EXPECT_EQ(own.count_nonzero().item<int64_t>(), 0);
    EXPECT_EQ(memory->find_written(), std::nullopt);
  }
  memory->restore();
  EXPECT_EQ(own.count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(memory->find_written(), std::nullopt);
}

TEST(NodeMemory, ASystemCallThatWritesIsFound) {
  const Communicator ranks = testing::on_nodes(Layout(static_cast<size_t>(world().size()), 0));
  const auto memory = made(ranks);
  const at::Tensor own = memory->own(0, kElements, at::kFloat);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  ASSERT_EQ(read(ends[0], static_cast<char*>(own.mutable_data_ptr()) + 50'001, 1), 1);
  EXPECT_EQ(memory->find_written(), size_t{50'001});
  close(ends[0]);
  close(ends[1]);
}

TEST(NodeMemory, APageThatWasWrittenWithTheSameBytesFollowsAgain) {
  const Communicator ranks = testing::on_nodes(Layout(static_cast<size_t>(world().size()), 0));
  const auto memory = made(ranks);
  const at::Tensor own = memory->own(0, kElements, at::kFloat);
  own.mul_(1.0);
  EXPECT_EQ(memory->find_written(), std::nullopt);
  ranks.barrier().wait();
  if (ranks.rank() == 0) {
    memory->published(0, kElements, at::kFloat).fill_(2.0);
  }
  ranks.barrier().wait();
  EXPECT_TRUE(own.eq(2.0).all().item<bool>());
}

struct Shared {
  explicit Shared(const Communicator& ranks, const Precision& precision)
      : parameters{{"a", {}, at::linspace(-1.0, 1.0, 5000, at::kFloat).requires_grad_()},
                   {"b", {}, at::linspace(-2.0, 0.5, 777, at::kFloat).requires_grad_()}} {
    std::vector<PlannedParameter> planned;
    for (const ModelTensor& entry : parameters) {
      const auto dtype = precision.storage_dtype(entry);
      planned.push_back({entry.tensor.numel(), dtype, at::kFloat, 0, c10::kCPU, false});
    }
    plans =
        plan_buckets(planned, BucketOptions().first_bucket_bytes(1).bucket_bytes(1), ranks.size());
    const size_t bytes = Arena::node_bytes(plans, ranks.size());
    Arena::Options options{false, ranks, NodeMemory::make(ranks, bytes, "test")};
    EXPECT_NE(options.node, nullptr);
    arena = std::make_unique<Arena>(parameters, plans, precision, std::move(options));
    ranks.barrier().wait();
  }
  std::vector<at::Tensor> weights() const {
    return {parameters[0].tensor.detach(), parameters[1].tensor.detach()};
  }
  std::vector<ModelTensor> parameters;
  std::vector<BucketPlan> plans;
  std::unique_ptr<Arena> arena;
};

TEST(SharedArena, HasTheWeightsOfAllShardsOnEveryNodeAfterAnUpdate) {
  const at::NoGradGuard no_grad;
  for (const Precision& precision : {Precision::O0(), Precision::O2(at::kBFloat16)}) {
    for (const Layout& layout : layouts()) {
      SCOPED_TRACE(testing::text_of(layout));
      const Communicator ranks = testing::on_nodes(layout);
      const Shared run(ranks, precision);
      const std::vector<at::Tensor> start = {run.weights()[0].clone(), run.weights()[1].clone()};
      EXPECT_TRUE(
          at::equal(start[0], at::linspace(-1.0, 1.0, 5000, at::kFloat).to(start[0].dtype())));
      ranks.barrier().wait();
      for (int update = 0; update < 3; ++update) {
        std::vector<Work> works;
        for (size_t b = 0; b < run.plans.size(); ++b) {
          const Arena::Bucket& bucket = run.arena->buckets()[b];
          bucket.published.narrow(0, bucket.share.begin, bucket.share.numel).mul_(2.0);
          works.push_back(run.arena->share_weights(b));
        }
        for (Work& work : works) {
          work.wait();
        }
        const auto factor = static_cast<double>(2 << update);
        for (size_t i = 0; i < 2; ++i) {
          EXPECT_TRUE(at::equal(run.weights()[i], start[i] * factor));
        }
        EXPECT_EQ(run.arena->written_weight(), std::nullopt);
        ranks.barrier().wait();
      }
    }
  }
}

TEST(SharedArena, TakesMastersOnEveryNode) {
  const at::NoGradGuard no_grad;
  for (const Precision& precision :
       {Precision::O0(), Precision::O2(at::kBFloat16), Precision::O2(at::kBFloat16).remainders()}) {
    for (const Layout& layout : layouts()) {
      SCOPED_TRACE(testing::text_of(layout));
      const Communicator ranks = testing::on_nodes(layout);
      const Shared run(ranks, precision);
      const std::vector<at::Tensor> start = {run.weights()[0].clone(), run.weights()[1].clone()};
      const std::vector<at::Tensor> room = run.arena->room_for_masters();
      const std::vector<at::Tensor> old = run.arena->whole_masters();
      for (size_t b = 0; b < room.size(); ++b) {
        room[b].copy_(old[b] * 4.0);
      }
      ranks.barrier().wait();
      run.arena->take_masters(room);
      run.arena->wait_for_node();
      EXPECT_TRUE(at::equal(run.weights()[0], start[0] * 4.0));
      EXPECT_TRUE(at::equal(run.weights()[1], start[1] * 4.0));
      EXPECT_EQ(run.arena->written_weight(), std::nullopt);
      ranks.barrier().wait();
    }
  }
}

TEST(SharedArena, NamesAWeightWhoseBitFlipped) {
  const at::NoGradGuard no_grad;
  const Communicator ranks = testing::on_nodes(Layout(static_cast<size_t>(world().size()), 0));
  const Shared run(ranks, Precision::O0());
  EXPECT_EQ(run.arena->changed_weight(), std::nullopt);
  ranks.barrier().wait();
  for (const Arena::Bucket& bucket : run.arena->buckets()) {
    if (ranks.rank() == 0 && bucket.weights.numel() < 2000) {  // that of b
      static_cast<unsigned char*>(bucket.published.mutable_data_ptr())[7] ^= 0x10U;
    }
  }
  ranks.barrier().wait();
  EXPECT_EQ(run.arena->written_weight(), std::nullopt);  // every rank sees it
  // Rank 0 has the first shard.
  EXPECT_EQ(run.arena->changed_weight(),
            ranks.rank() == 0 ? std::optional<std::string>("b") : std::nullopt);
}

TEST(SharedArena, NamesTheWeightThatWasWritten) {
  const at::NoGradGuard no_grad;
  const Communicator ranks = testing::on_nodes(Layout(static_cast<size_t>(world().size()), 0));
  const Shared run(ranks, Precision::O0());
  run.weights()[1][776] = 7.0;
  EXPECT_EQ(run.arena->written_weight(), std::optional<std::string>("b"));
  run.weights()[0][0] = 7.0;
  run.weights()[1][776] = 0.5;
  EXPECT_EQ(run.arena->written_weight(), std::optional<std::string>("a"));
}

}  // namespace
}  // namespace lockstep
