#include "test_names.h"
#include "thread_ranks.h"
#include "verbs.h"

#include <lockstep/collectives/exceptions.h>
#include <atomic>
#include <chrono>
#include <cmath>

namespace lockstep {
namespace {

class ThreadTransport : public ::testing::TestWithParam<int> {
 protected:
  void run(const std::function<void(Communicator&)>& body) { run_ranks(GetParam(), body); }
};

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadTransport, ::testing::Values(1, 2, 3, 4, 5),
                         [](const auto& info) { return "np" + std::to_string(info.param); });

const at::ScalarType kFloats[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
const at::ScalarType kIntegers[] = {at::kChar, at::kByte, at::kShort, at::kInt, at::kLong};

TEST_P(ThreadTransport, KnowsItsPlace) {
  std::atomic<int> sum{0};
  run([&](Communicator& ranks) {
    EXPECT_EQ(ranks.size(), GetParam());
    EXPECT_EQ(ranks.local_rank(), ranks.rank());
    EXPECT_EQ(ranks.local_size(), ranks.size());
    EXPECT_EQ(ranks.transport_name(), GetParam() == 1 ? "solo" : "thread");
    sum += ranks.rank();
  });
  EXPECT_EQ(sum, GetParam() * (GetParam() - 1) / 2);
}

TEST_P(ThreadTransport, AllReduceSumsEverySize) {
  run([](Communicator& ranks) {
    for (int64_t numel : sizes()) {
      check_all_reduce(ranks, numel, at::kFloat, ReduceOp::sum(), /*in_window=*/false);
      check_all_reduce(ranks, numel, at::kHalf, ReduceOp::sum(), /*in_window=*/false);
    }
  });
}

TEST_P(ThreadTransport, AllReduceInWindowsSumsEverySize) {
  run([](Communicator& ranks) {
    for (int64_t numel : sizes()) {
      check_all_reduce(ranks, numel, at::kFloat, ReduceOp::sum(), /*in_window=*/true);
      check_all_reduce(ranks, numel, at::kBFloat16, ReduceOp::sum(), /*in_window=*/true);
    }
  });
}

TEST_P(ThreadTransport, AllReduceKnowsEveryDtypeAndOperation) {
  run([](Communicator& ranks) {
    for (bool in_window : {false, true}) {
      for (int64_t numel : {33, 9001}) {
        for (at::ScalarType dtype : kFloats) {
          check_all_reduce(ranks, numel, dtype, ReduceOp::sum(), in_window);
          check_all_reduce(ranks, numel, dtype, ReduceOp::max(), in_window);
          check_all_reduce(ranks, numel, dtype, ReduceOp::min(), in_window);
          check_all_reduce(ranks, numel, dtype, ReduceOp::avg().predivide(2.0), in_window);
        }
        for (at::ScalarType dtype : kIntegers) {
          check_all_reduce(ranks, numel, dtype, ReduceOp::sum(), in_window);
          check_all_reduce(ranks, numel, dtype, ReduceOp::max(), in_window);
          check_all_reduce(ranks, numel, dtype, ReduceOp::min(), in_window);
        }
      }
    }
  });
}

TEST_P(ThreadTransport, MaxOfBoolIsAnyRankAndMinIsAllRanks) {
  run([](Communicator& ranks) {
    at::Tensor flags = at::zeros({ranks.size() + 1}, at::kBool);
    flags[ranks.rank()] = true;
    const at::Tensor others = flags.logical_not();
    ranks.all_reduce(flags, ReduceOp::max()).wait();
    EXPECT_EQ(flags.sum().item<int64_t>(), ranks.size());
    ranks.all_reduce(others, ReduceOp::min()).wait();
    EXPECT_EQ(others.sum().item<int64_t>(), 1);
  });
}

TEST_P(ThreadTransport, ReduceScatterGivesEachRankItsShare) {
  run([](Communicator& ranks) {
    for (int64_t numel : sizes()) {
      check_reduce_scatter(ranks, numel, at::kFloat, ReduceOp::sum());
    }
    check_reduce_scatter(ranks, 4097, at::kHalf, ReduceOp::avg());
    check_reduce_scatter(ranks, 4097, at::kLong, ReduceOp::max());
  });
}

TEST_P(ThreadTransport, ReduceScatterHasTheBitsOfAllReduce) {
  run([](Communicator& ranks) {
    const at::Tensor input = uneven_numbers(ranks.rank(), ranks.size() * 5000);
    const at::Tensor whole = input.clone();
    at::Tensor share = at::empty({5000});
    ranks.all_reduce(whole, ReduceOp::avg()).wait();
    ranks.reduce_scatter(share, input, ReduceOp::avg()).wait();
    EXPECT_TRUE(same_bits(share, whole.narrow(0, ranks.rank() * 5000, 5000).clone()));
  });
}

TEST_P(ThreadTransport, ReduceScatterInPlaceOfASharedBufferHasTheBitsOfAllReduce) {
  run([](Communicator& ranks) {
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
      const int64_t share = 5000;
      const at::Tensor buffer = ranks.allocate(share * ranks.size(), dtype);
      const at::Tensor own = buffer.narrow(0, ranks.rank() * share, share);
      const at::Tensor values = uneven_numbers(ranks.rank(), buffer.numel()).to(dtype);
      const at::Tensor whole = values.clone();
      ranks.all_reduce(whole, ReduceOp::avg()).wait();
      for (int round = 0; round < 20; ++round) {  // a peer that is late still reads the old values
        buffer.copy_(values);
        ranks.reduce_scatter(own, buffer, ReduceOp::avg()).wait();
        EXPECT_TRUE(same_bits(own.clone(), whole.narrow(0, ranks.rank() * share, share).clone()));
      }
    }
  });
}

TEST_P(ThreadTransport, AllGatherKeepsRankOrder) {
  run([](Communicator& ranks) {
    for (int64_t numel : sizes()) {
      check_all_gather(ranks, numel, at::kFloat);
    }
    check_all_gather(ranks, 1001, at::kByte);
    check_all_gather(ranks, 1001, at::kComplexDouble);
  });
}

TEST_P(ThreadTransport, BroadcastFromEveryRoot) {
  run([](Communicator& ranks) {
    for (int root = 0; root < ranks.size(); ++root) {
      for (int64_t numel : sizes()) {
        check_broadcast(ranks, numel, at::kFloat, root);
      }
      check_broadcast(ranks, 77, at::kBool, root);
    }
  });
}

TEST_P(ThreadTransport, BarrierWaitsForEveryRank) {
  std::atomic<int> arrived{0};
  run([&](Communicator& ranks) {
    for (int round = 1; round <= 20; ++round) {
      if ((round + ranks.rank()) % 3 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      ++arrived;
      ranks.barrier().wait();
      EXPECT_GE(arrived.load(), round * ranks.size());
    }
  });
}

TEST_P(ThreadTransport, ResultsAreBitEqualAndIndependentOfTiming) {
  std::vector<std::string> bits(3);
  for (size_t round = 0; round < bits.size(); ++round) {
    run([&](Communicator& ranks) {
      std::string own;
      for (int64_t numel : {100, 5000, 200000}) {
        const at::Tensor values = uneven_numbers(ranks.rank(), numel).to(at::kHalf);
        if ((ranks.rank() + static_cast<int>(round)) % 2 == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(3));
        }
        ranks.all_reduce(values, ReduceOp::avg()).wait();
        EXPECT_TRUE(same_on_all_ranks(ranks, values));
        own += std::string(static_cast<const char*>(values.data_ptr()), values.nbytes());
      }
      if (ranks.rank() == 0) {
        bits[round] = own;
      }
    });
  }
  EXPECT_TRUE(bits[0] == bits[1] && bits[0] == bits[2]);
}

TEST_P(ThreadTransport, WindowsAndPrivateTensorsGiveTheSameBits) {
  run([](Communicator& ranks) {
    for (at::ScalarType dtype : kFloats) {
      const at::Tensor own = uneven_numbers(ranks.rank(), 70001).to(dtype);
      at::Tensor window = ranks.allocate(70001, dtype);
      window.copy_(own);
      ranks.all_reduce(own, ReduceOp::avg()).wait();
      ranks.all_reduce(window, ReduceOp::avg()).wait();
      EXPECT_TRUE(same_bits(own, window)) << dtype;
    }
  });
}

TEST_P(ThreadTransport, PartsOfAWindowAreReducedAlone) {
  run([](Communicator& ranks) {
    at::Tensor window = ranks.allocate(100000, at::kFloat);
    EXPECT_EQ(window.count_nonzero().item<int64_t>(), 0);
    window.fill_(ranks.rank() + 1.0);
    ranks.barrier().wait();
    const at::Tensor part = window.narrow(0, 20001, 50000);
    ranks.all_reduce(part).wait();
    const double sum = ranks.size() * (ranks.size() + 1) / 2.0;
    EXPECT_EQ((window == sum).sum().item<int64_t>() >= 50000, true);
    EXPECT_EQ(window[20000].item<float>(), ranks.rank() + 1.0f);
    EXPECT_EQ(window[70001].item<float>(), ranks.rank() + 1.0f);
    EXPECT_EQ(window[20001].item<float>(), sum);
    EXPECT_EQ(window[70000].item<float>(), sum);
  });
}

TEST_P(ThreadTransport, AWindowOutlivesItsCommunicator) {
  std::vector<at::Tensor> kept(static_cast<size_t>(GetParam()));
  run([&](Communicator& ranks) {
    at::Tensor window = ranks.allocate(5000, at::kLong);
    window.fill_(3);
    ranks.all_reduce(window).wait();
    kept[static_cast<size_t>(ranks.rank())] = window;
  });
  for (const at::Tensor& window : kept) {
    EXPECT_EQ(window.sum().item<int64_t>(), 5000 * 3 * GetParam());
  }
}

TEST_P(ThreadTransport, DroppedWindowsAreForgotten) {
  run([](Communicator& ranks) {
    std::vector<at::Tensor> small;
    for (int i = 0; i < 30; ++i) {
      small.push_back(ranks.allocate(3000, at::kFloat));
    }
    small.clear();
    at::Tensor window = ranks.allocate(30 * 5000, at::kFloat);  // where the small ones were
    for (int i = 0; i < 30; ++i) {
      const at::Tensor part = window.narrow(0, i * 5000, 5000);
      part.fill_(i + ranks.rank());
      ranks.all_reduce(part).wait();
      EXPECT_EQ(part[4999].item<float>(), ranks.size() * i + ranks.size() * (ranks.size() - 1) / 2);
    }
  });
}

TEST_P(ThreadTransport, ManyOperationsInFlightWaitedForOutOfOrder) {
  run([](Communicator& ranks) {
    constexpr int kOperations = 100;
    at::Tensor window = ranks.allocate(kOperations * 3000, at::kFloat);
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < kOperations; ++i) {
      tensors.push_back(i % 2 == 0 ? window.narrow(0, i * 3000, 3000)
                                   : at::empty({i % 5 < 3 ? 10 + i : 3000}));
      tensors.back().fill_(ranks.rank() + i);
    }
    std::vector<Work> works;
    for (const at::Tensor& tensor : tensors) {
      works.push_back(ranks.all_reduce(tensor));
      if (works.size() % 7 == static_cast<size_t>(ranks.rank())) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
    for (int i = kOperations - 1; i >= 0; --i) {
      const int n = ranks.size();
      works[static_cast<size_t>(i)].wait();
      EXPECT_TRUE((tensors[static_cast<size_t>(i)] == n * i + n * (n - 1) / 2).all().item<bool>())
          << i;
    }
  });
}

TEST_P(ThreadTransport, OperationsOnTheSameMemoryHappenInTheirOrder) {
  run([](Communicator& ranks) {
    for (int64_t numel : {100, 50000, 400000}) {
      for (bool in_window : {false, true}) {
        at::Tensor tensor = in_window ? ranks.allocate(numel, at::kFloat) : at::empty({numel});
        tensor.fill_(1.0);
        const at::Tensor part = tensor.narrow(0, numel / 2, numel / 2);
        static_cast<void>(ranks.all_reduce(tensor));
        static_cast<void>(ranks.all_reduce(part));
        Work last = ranks.broadcast(tensor, ranks.size() - 1);
        ranks.all_reduce(tensor).wait();
        EXPECT_TRUE(last.test());
        const double n = ranks.size();
        EXPECT_EQ(tensor[0].item<float>(), n * n);
        EXPECT_EQ(tensor[numel - 1].item<float>(), n * n * n);
      }
    }
  });
}

TEST_P(ThreadTransport, TestMakesProgressWithoutBlocking) {
  run([](Communicator& ranks) {
    const at::Tensor tensor = at::ones({3000000});
    Work work = ranks.all_reduce(tensor);
    while (!work.test()) {
      std::this_thread::yield();
    }
    EXPECT_EQ(tensor[2999999].item<float>(), ranks.size());
    Work second = ranks.all_reduce(tensor);
    static_cast<void>(ranks.barrier());
    for (int i = 0; i < 100; ++i) {
      ranks.progress();
    }
    second.wait();
    EXPECT_EQ(tensor[0].item<float>(), ranks.size() * ranks.size());
  });
}

TEST_P(ThreadTransport, DroppedWorkStillCompletes) {
  run([](Communicator& ranks) {
    at::Tensor kept = at::ones({40000});
    {
      at::Tensor dropped = at::ones({40000});
      static_cast<void>(ranks.all_reduce(dropped));
    }
    static_cast<void>(ranks.all_reduce(kept));
    ranks.barrier().wait();
    EXPECT_EQ(kept[39999].item<float>(), ranks.size());
  });
}

TEST_P(ThreadTransport, SplitOrdersByKeyThenRank) {
  run([](Communicator& ranks) {
    const int color = ranks.rank() % 2;
    Communicator part = ranks.split(color, /*key=*/-ranks.rank());
    const int members = (ranks.size() + 1 - color) / 2;
    ASSERT_EQ(part.size(), members);
    EXPECT_EQ(part.rank(), members - 1 - ranks.rank() / 2);
    at::Tensor tensor = at::full({20000}, ranks.rank(), at::kInt);
    part.all_reduce(tensor).wait();
    int sum = 0;
    for (int k = color; k < ranks.size(); k += 2) {
      sum += k;
    }
    EXPECT_EQ(tensor[19999].item<int>(), sum);
    check_all_reduce(part, 9000, at::kFloat, ReduceOp::sum(), /*in_window=*/true);
    check_all_reduce(ranks, 9000, at::kFloat, ReduceOp::sum(), /*in_window=*/true);
  });
}

TEST_P(ThreadTransport, SplitWithNegativeColorGivesNone) {
  run([](Communicator& ranks) {
    Communicator rest = ranks.split(ranks.rank() == 0 ? -1 : 5);
    EXPECT_EQ(rest.valid(), ranks.rank() != 0);
    if (rest.valid()) {
      EXPECT_EQ(rest.size(), ranks.size() - 1);
      rest.barrier().wait();
    } else {
      EXPECT_THROW(rest.size(), Error);
    }
    ranks.barrier().wait();
  });
}

TEST_P(ThreadTransport, AllGatherBytesOfUnequalLengths) {
  run([](Communicator& ranks) {
    const std::string own(static_cast<size_t>(ranks.rank() * 1000), 'a' + ranks.rank());
    const std::vector<std::string> all = ranks.all_gather_bytes(own);
    ASSERT_EQ(all.size(), static_cast<size_t>(ranks.size()));
    for (int k = 0; k < ranks.size(); ++k) {
      EXPECT_EQ(all[static_cast<size_t>(k)], std::string(static_cast<size_t>(k * 1000), 'a' + k));
    }
  });
}

TEST_P(ThreadTransport, WithoutChecksTheResultsAreTheSame) {
  CommunicatorOptions options;
  options.check = CollectiveCheck::off;
  run_ranks(
      GetParam(),
      [](Communicator& ranks) {
        for (int64_t numel : {10, 5000, 700000}) {
          check_all_reduce(ranks, numel, at::kHalf, ReduceOp::sum(), /*in_window=*/false);
          check_all_reduce(ranks, numel, at::kFloat, ReduceOp::avg(), /*in_window=*/true);
        }
      },
      options);
}

TEST(ThreadTransportOverflow, AverageOfNineThousandFitsInHalf) {
  run_ranks(8, [](Communicator& ranks) {
    for (int64_t numel : {5, 30000}) {
      const at::Tensor values = at::full({numel}, 9000.0, at::kHalf);
      ranks.all_reduce(values, ReduceOp::avg()).wait();
      EXPECT_TRUE((values == 9000).all().item<bool>());
      ranks.all_reduce(values, ReduceOp::sum()).wait();
      EXPECT_TRUE(at::isinf(values).all().item<bool>());
    }
  });
}

TEST(ThreadTransportOverflow, InfOrNanOfOneRankReachesAll) {
  run_ranks(3, [](Communicator& ranks) {
    for (int64_t numel : {9, 30000}) {
      at::Tensor values = at::zeros({numel}, at::kHalf);
      if (ranks.rank() == 1) {
        values[numel - 1] = INFINITY;
        values[numel - 2] = NAN;
      }
      ranks.all_reduce(values).wait();
      EXPECT_TRUE(std::isinf(values[numel - 1].item<float>()));
      EXPECT_TRUE(std::isnan(values[numel - 2].item<float>()));
      EXPECT_TRUE(same_on_all_ranks(ranks, values));
    }
  });
}

}  // namespace
}  // namespace lockstep
