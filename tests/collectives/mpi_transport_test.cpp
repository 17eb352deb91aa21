#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "mpi_world.h"
#include "test_names.h"
#include "verbs.h"

namespace lockstep {
namespace {

const std::vector<int64_t> kSizes = {0, 1, 8, 65, 4097, 600001};
const at::ScalarType kFloats[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

TEST(MpiTransport, KnowsItsPlace) {
  EXPECT_EQ(world().transport_name(), "mpi");
  EXPECT_LT(world().rank(), world().size());
  EXPECT_LT(world().local_rank(), world().local_size());
  const std::string place = std::to_string(world().local_rank());
  EXPECT_EQ(world().all_gather_bytes(place).at(static_cast<size_t>(world().rank())), place);
}

TEST(MpiTransport, FindsTheNodes) {
  const char* nodes = std::getenv("LOCKSTEP_TEST_NODES");
  if (nodes == nullptr) {
    EXPECT_EQ(world().local_size(), world().size());
  } else {
    EXPECT_LT(world().local_size(), world().size());
  }
}

TEST(MpiTransport, AllReduceOfPrivateTensors) {
  for (int64_t numel : kSizes) {
    for (at::ScalarType dtype : kFloats) {
      check_all_reduce(world(), numel, dtype, ReduceOp::sum(), /*in_window=*/false);
    }
  }
}

TEST(MpiTransport, AllReduceInWindows) {
  for (int64_t numel : kSizes) {
    for (at::ScalarType dtype : kFloats) {
      check_all_reduce(world(), numel, dtype, ReduceOp::avg(), /*in_window=*/true);
    }
  }
}

TEST(MpiTransport, AllReduceOfIntegersMaximumAndMinimum) {
  for (bool in_window : {false, true}) {
    for (at::ScalarType dtype : {at::kChar, at::kByte, at::kShort, at::kInt, at::kLong}) {
      check_all_reduce(world(), 9001, dtype, ReduceOp::sum(), in_window);
      check_all_reduce(world(), 9001, dtype, ReduceOp::max(), in_window);
      check_all_reduce(world(), 9001, dtype, ReduceOp::min(), in_window);
    }
    check_all_reduce(world(), 9001, at::kHalf, ReduceOp::max(), in_window);
    check_all_reduce(world(), 9001, at::kHalf, ReduceOp::avg().predivide(2.0), in_window);
  }
}

TEST(MpiTransport, SixteenBitSumsAreRoundedOnceAtTheEnd) {
  // 2048 + 1 + 1 + ...: in steps of half every sum rounds back to 2048.
  for (int64_t numel : {10, 100000}) {
    at::Tensor values = at::full({numel}, world().rank() == 0 ? 2048.0 : 1.0, at::kHalf);
    world().all_reduce(values).wait();
    const at::Half expected(2048.f + static_cast<float>(world().size() - 1));
    EXPECT_EQ(values[numel - 1].item<at::Half>(), expected);
  }
}

TEST(MpiTransport, ResultsAreBitEqualOnAllRanks) {
  for (int64_t numel : {100, 70001, 1000003}) {
    for (at::ScalarType dtype : kFloats) {
      const at::Tensor values = uneven_numbers(world().rank(), numel).to(dtype);
      at::Tensor window = world().allocate(numel, dtype);
      window.copy_(values);
      world().all_reduce(values, ReduceOp::avg()).wait();
      world().all_reduce(window, ReduceOp::avg()).wait();
      EXPECT_TRUE(same_on_all_ranks(world(), values)) << dtype;
      EXPECT_TRUE(same_bits(values, window)) << dtype;
    }
  }
}

TEST(MpiTransport, ReduceScatter) {
  for (int64_t numel : kSizes) {
    check_reduce_scatter(world(), numel, at::kFloat, ReduceOp::sum());
    check_reduce_scatter(world(), numel, at::kBFloat16, ReduceOp::avg());
  }
}

TEST(MpiTransport, AllGather) {
  for (int64_t numel : kSizes) {
    check_all_gather(world(), numel, at::kFloat);
    check_all_gather(world(), numel, at::kByte);
  }
}

TEST(MpiTransport, BroadcastFromEveryRoot) {
  for (int root = 0; root < world().size(); ++root) {
    for (int64_t numel : kSizes) {
      check_broadcast(world(), numel, at::kHalf, root);
    }
  }
}

TEST(MpiTransport, BarrierWaitsForTheLastRank) {
  using Clock = std::chrono::system_clock;  // the same on all ranks of a machine
  for (int last = 0; last < world().size(); ++last) {
    world().barrier().wait();
    int64_t arrived = 0;
    if (world().rank() == last) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      arrived = Clock::now().time_since_epoch().count();
    }
    world().barrier().wait();
    const int64_t left = Clock::now().time_since_epoch().count();
    const at::Tensor arrival = at::full({1}, arrived, at::kLong);
    world().all_reduce(arrival, ReduceOp::max()).wait();
    EXPECT_GE(left, arrival.item<int64_t>());
  }
}

TEST(MpiTransport, ManyOperationsInFlight) {
  at::Tensor window = world().allocate(60 * 20000, at::kFloat);
  std::vector<at::Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 60; ++i) {
    tensors.push_back(i % 3 == 0 ? at::empty({i * 1000 + 1}) : window.narrow(0, i * 20000, 20000));
    tensors.back().fill_(world().rank() + i);
    works.push_back(world().all_reduce(tensors.back()));
  }
  const int n = world().size();
  for (int i = 59; i >= 0; --i) {
    works[static_cast<size_t>(i)].wait();
    EXPECT_TRUE((tensors[static_cast<size_t>(i)] == n * i + n * (n - 1) / 2).all().item<bool>());
  }
}

TEST(MpiTransport, SplitGroupsWorkSideBySide) {
  Communicator part = world().split(world().rank() % 2, -world().rank());
  EXPECT_EQ(part.size(), (world().size() + 1 - world().rank() % 2) / 2);
  check_all_reduce(part, 5000, at::kHalf, ReduceOp::sum(), /*in_window=*/false);
  check_all_reduce(part, 50000, at::kHalf, ReduceOp::sum(), /*in_window=*/true);
  check_all_reduce(world(), 50000, at::kHalf, ReduceOp::sum(), /*in_window=*/true);
  Communicator none = world().split(world().rank() == 0 ? -1 : 0);
  EXPECT_EQ(none.valid(), world().rank() != 0);
  if (none.valid() && none.size() > 1) {
    check_all_gather(none, 1000, at::kInt);
  }
}

TEST(MpiTransport, WindowsLeaveNothingInDevShm) {
  at::Tensor window = world().allocate(1 << 20, at::kFloat);
  world().barrier().wait();
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_NE(entry.path().filename().string().find("lockstep-"), 0u) << entry.path();
  }
  world().barrier().wait();
}

}  // namespace
}  // namespace lockstep
