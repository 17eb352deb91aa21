// How buffers travel: the number of collectives, and the bits.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/storage/impl/buffer_sync.h>

#include <algorithm>
#include <functional>
#include <thread>

namespace lockstep {
namespace {

using detail::BufferSync;

using Ranks = std::function<void(const Communicator&)>;

/// Runs `body` on ranks that are threads.
void on_ranks(int count, const Ranks& body) {
  std::vector<std::thread> threads;
  for (const Communicator& own : Communicator::threads(count)) {
    threads.emplace_back([&body, own] { body(own); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

int64_t collectives(const Communicator& communicator) {
  const std::string log = communicator.collective_log();
  return std::count(log.begin(), log.end(), '#');
}

/// The buffers of 53 BatchNorm layers, and others; every value names its rank.
std::vector<ModelTensor> buffers_of(int rank) {
  std::vector<ModelTensor> buffers;
  const auto add = [&](const at::Tensor& tensor) {
    tensor.fill_(10 * rank + static_cast<int64_t>(buffers.size()) % 7 + 1);
    buffers.push_back({"buffer" + std::to_string(buffers.size()), {}, tensor});
  };
  for (int64_t layer = 0; layer < 53; ++layer) {
    add(at::empty({3 + layer % 4}));
    add(at::empty({3 + layer % 4}));
    add(at::empty({}, at::kLong));
  }
  add(at::empty({5}, at::kHalf));
  add(at::empty({3}, at::kBool));
  add(at::empty({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast));
  add(at::empty({0}));
  return buffers;
}

std::vector<at::Tensor> copies(const std::vector<ModelTensor>& buffers) {
  std::vector<at::Tensor> result;
  for (const ModelTensor& entry : buffers) {
    result.push_back(entry.tensor.clone());
  }
  return result;
}

void expect_equal(const std::vector<ModelTensor>& buffers,
                  const std::vector<at::Tensor>& expected) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_TRUE(at::equal(buffers[i].tensor, expected[i])) << buffers[i].name;
  }
}

TEST(BufferSync, SendsAllBuffersInOneBroadcast) {
  on_ranks(3, [](const Communicator& ranks) {
    const auto buffers = buffers_of(ranks.rank());
    const auto expected = copies(buffers_of(0));
    BufferSync sync(BufferPolicy::broadcast, ranks);
    auto version = buffers[0].tensor._version();
    const int64_t before = collectives(ranks);
    for (int64_t window = 1; window <= 3; ++window) {
      sync.run(buffers);
      EXPECT_EQ(collectives(ranks), before + window);
      expect_equal(buffers, expected);
      EXPECT_GT(buffers[0].tensor._version(), version) << "a graph that saved it must be refused";
      version = buffers[0].tensor._version();
      buffers[window].tensor.fill_(0);
      buffers[window].tensor.copy_(expected[window].add(ranks.rank()));
    }
  });
}

TEST(BufferSync, AveragesFloatingBuffersByDtypeWithTheBitsOfEachAlone) {
  on_ranks(3, [](const Communicator& ranks) {
    auto buffers = buffers_of(ranks.rank());
    for (const ModelTensor& entry : buffers) {
      if (entry.tensor.is_floating_point()) {
        entry.tensor.div_(3).add_(0.1);
      }
    }
    auto expected = copies(buffers);
    for (at::Tensor& each : expected) {
      if (each.is_floating_point()) {
        each = each.contiguous();
        ranks.all_reduce(each, ReduceOp::avg()).wait();
      } else {
        ranks.broadcast(each).wait();
      }
    }
    BufferSync sync(BufferPolicy::average, ranks);
    const std::string log = ranks.collective_log();
    sync.run(buffers);
    expect_equal(buffers, expected);
    const auto fresh = Communicator(ranks).split(0, ranks.rank());
    BufferSync counted(BufferPolicy::average, fresh);
    counted.run(buffers);
    EXPECT_EQ(collectives(fresh), 3) << "fp32, fp16, and all that is not floating";
  });
}

TEST(BufferSync, FollowsABufferToOtherMemory) {
  on_ranks(2, [](const Communicator& ranks) {
    const auto buffers = buffers_of(ranks.rank());
    BufferSync sync(BufferPolicy::broadcast, ranks);
    sync.run(buffers);
    if (ranks.rank() == 1) {
      buffers[4].tensor.set_data(at::full_like(buffers[4].tensor, 77));
    }
    sync.run(buffers);
    expect_equal(buffers, copies(buffers_of(0)));
  });
}

TEST(BufferSync, DoesNothingForOneRankOrNoPolicyOrNoBuffers) {
  on_ranks(2, [](const Communicator& ranks) {
    const auto buffers = buffers_of(ranks.rank());
    BufferSync(BufferPolicy::none, ranks).run(buffers);
    BufferSync(BufferPolicy::broadcast, ranks).run({});
    BufferSync(BufferPolicy::broadcast, Communicator::solo()).run(buffers);
    expect_equal(buffers, copies(buffers_of(ranks.rank())));
    EXPECT_EQ(collectives(ranks), 0);
  });
}

}  // namespace
}  // namespace lockstep
