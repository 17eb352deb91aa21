// Device tensors over the host: the host's bits, in order, in chunks, without waiting too early.
#include <gmock/gmock.h>

#include "fake_device.h"
#include "test_names.h"
#include "thread_ranks.h"
#include "verbs.h"

#include <lockstep/collectives/device/staged_step.h>
#include <lockstep/collectives/device/staged_transport.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/graph_capture.h>

namespace lockstep {

using namespace detail;

namespace {

struct StagedRank {
  explicit StagedRank(const Communicator& host, int64_t chunk_bytes,
                      std::chrono::milliseconds timeout)
      : host(host),
        down(std::make_shared<FakeLane>(current)),
        up(std::make_shared<FakeLane>(current)),
        parts{down, up, host, timeout, chunk_bytes} {}
  int rank() const { return host.rank(); }
  at::Tensor read(const at::Tensor& tensor) {
    current.finish();
    return bytes_of_device(tensor).clone();
  }

  Communicator host;
  FakeStream current;
  std::shared_ptr<FakeLane> down;
  std::shared_ptr<FakeLane> up;
  StagedParts parts;
};

using Body = std::function<void(StagedRank&, Communicator&)>;

std::vector<RankOutcome> staged_outcomes(
    int ranks, const Body& body, std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  return outcomes(ranks, [&](Communicator& host) {
    StagedRank rank(host, /*chunk_bytes=*/64, timeout);
    Communicator staged(make_staged_transport(rank.parts));
    body(rank, staged);
  });
}

void run_staged(int ranks, const Body& body) {
  for (const RankOutcome& rank : staged_outcomes(ranks, body)) {
    EXPECT_EQ(rank.kind, RankOutcome::Kind::returned) << rank.message;
  }
}

TEST(StagedTransport, SumsHaveTheHostsBitsAcrossChunks) {
  run_staged(3, [](StagedRank& rank, Communicator& staged) {
    EXPECT_EQ(staged.transport_name(), "staged");
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const int64_t numel : {0, 1, 16, 32, 33, 500}) {
        const at::Tensor host = uneven_numbers(rank.rank(), numel).to(dtype);
        const at::Tensor device = on_fake_device(host);
        staged.all_reduce(device, ReduceOp::avg()).wait();
        rank.host.all_reduce(host, ReduceOp::avg()).wait();
        EXPECT_TRUE(same_bits(rank.read(device), host)) << dtype << "[" << numel << "]";
      }
    }
  });
}

TEST(StagedTransport, MovesAndScattersEveryDtype) {
  run_staged(2, [](StagedRank& rank, Communicator& staged) {
    for (const at::ScalarType dtype : {at::kHalf, at::kInt, at::kDouble}) {
      const at::Tensor gathered = on_fake_device(at::zeros({14}, dtype));
      staged.all_gather(gathered, on_fake_device(input_of(rank.rank(), 7, dtype))).wait();
      EXPECT_TRUE(
          at::equal(rank.read(gathered), at::cat({input_of(0, 7, dtype), input_of(1, 7, dtype)})));
      const at::Tensor share = on_fake_device(at::zeros({7}, dtype));
      staged.reduce_scatter(share, on_fake_device(input_of(rank.rank(), 14, dtype))).wait();
      EXPECT_TRUE(at::equal(
          rank.read(share),
          expected_reduction(2, 14, dtype, ReduceOp::sum()).narrow(0, 7 * rank.rank(), 7)));
      const at::Tensor tensor = on_fake_device(input_of(rank.rank(), 7, dtype));
      staged.broadcast(tensor, 1).wait();
      EXPECT_TRUE(at::equal(rank.read(tensor), input_of(1, 7, dtype)));
    }
  });
}

TEST(StagedTransport, TakesTensorsOfAnyShape) {
  run_staged(2, [](StagedRank& rank, Communicator& staged) {
    const at::Tensor gathered = on_fake_device(at::zeros({2, 3, 5}));
    staged.all_gather(gathered, on_fake_device(at::ones({3, 5}))).wait();
    EXPECT_TRUE(at::equal(rank.read(gathered), at::ones({2, 3, 5})));
    const at::Tensor share = on_fake_device(at::zeros({5}));
    staged.reduce_scatter(share, on_fake_device(at::ones({2, 5}))).wait();
    EXPECT_TRUE(at::equal(rank.read(share), at::full({5}, 2.0F)));
    const at::Tensor tensor = on_fake_device(at::full({3, 5}, static_cast<float>(rank.rank())));
    staged.broadcast(tensor, 1).wait();
    EXPECT_TRUE(at::equal(rank.read(tensor), at::ones({3, 5})));
    staged.all_reduce(tensor).wait();
    EXPECT_TRUE(at::equal(rank.read(tensor), at::full({3, 5}, 2.0F)));
  });
}

TEST(StagedTransport, SeveralBucketsAreUnderWayAtOnce) {
  run_staged(2, [](StagedRank& rank, Communicator& staged) {
    std::vector<at::Tensor> buckets;
    std::vector<Work> works;
    for (int b = 0; b < 10; ++b) {
      buckets.push_back(on_fake_device(at::full({100}, static_cast<float>(b))));
      works.push_back(staged.all_reduce(buckets.back()));
    }
    for (size_t b = 0; b < buckets.size(); ++b) {
      works[b].wait();
    }
    for (size_t b = 0; b < buckets.size(); ++b) {
      EXPECT_TRUE(at::equal(rank.read(buckets[b]), at::full({100}, 2.0F * static_cast<float>(b))));
    }
    while (!works.back().test()) {
    }
    EXPECT_EQ(staged.collective_log().find("running"), std::string::npos);
  });
}

TEST(StagedTransport, RanksWhoseDevicesDifferInSpeedStillAgree) {
  run_staged(2, [](StagedRank& rank, Communicator& staged) {
    std::atomic<int> asked{0};
    if (rank.rank() == 0) {
      rank.current.put([&] { return ++asked > 3000; });
    }
    const at::Tensor a = on_fake_device(at::ones({100}));
    const at::Tensor host = at::ones({4});
    Work first = staged.all_reduce(a);
    staged.all_reduce(host).wait();  // does not overtake into the chunks
    first.wait();
    EXPECT_TRUE(at::equal(rank.read(a), at::full({100}, 2.0F)));
    EXPECT_TRUE(at::equal(host, at::full({4}, 2.0F)));
  });
}

TEST(StagedTransport, ReadsWhatTheCallersStreamWroteBefore) {
  run_staged(2, [](StagedRank& rank, Communicator& staged) {
    const at::Tensor tensor = on_fake_device(at::zeros({100}));
    std::atomic<bool> go{false};
    rank.current.put([&] { return go.load(); });
    rank.current.run([&] { bytes_of_device(tensor).fill_(1); });
    Work work = staged.all_reduce(tensor);
    for (int i = 0; i < 1000; ++i) {
      EXPECT_FALSE(work.test());
    }
    go = true;
    work.wait();
    EXPECT_TRUE(at::equal(rank.read(tensor), at::full({100}, 2.0F)));
  });
}

TEST(StagedTransport, TheCallersStreamWaitsForTheWayUpAndTheHostDoesNot) {
  run_staged(2, [](StagedRank& rank, Communicator& staged) {
    std::atomic<bool> go{false};
    static_cast<FakeStream*>(rank.up->stream())->put([&] { return go.load(); });
    const at::Tensor tensor = on_fake_device(at::ones({100}));
    Work work = staged.all_reduce(tensor);
    work.wait();
    at::Tensor seen;
    rank.current.run([&] { seen = bytes_of_device(tensor).clone(); });
    go = true;
    rank.current.finish();
    EXPECT_TRUE(at::equal(seen, at::full({100}, 2.0F)));
  });
}

TEST(StagedTransport, TellsTheAllocatorWhichTensorsItUses) {
  run_staged(2, [](StagedRank& rank, Communicator& staged) {
    const at::Tensor tensor = on_fake_device(at::ones({20}));
    staged.all_reduce(tensor).wait();
    EXPECT_EQ(rank.down->protected_memory, storages_of({tensor, tensor})) << "two chunks";
    EXPECT_EQ(rank.up->protected_memory, storages_of({tensor, tensor}));
    rank.current.finish();
  });
}

TEST(StagedTransport, ADeviceThatIsStuckIsACommunicationError) {
  const auto result = staged_outcomes(
      2,
      [](StagedRank& rank, Communicator& staged) {
        rank.current.put([] { return false; });
        staged.all_reduce(on_fake_device(at::ones({100}))).wait();
      },
      std::chrono::milliseconds(100));
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, RankOutcome::Kind::communication_error);
    EXPECT_NE(rank.message.find("it is stuck"), std::string::npos) << rank.message;
  }
}

TEST(StagedTransport, DifferentSizesAreAnErrorOnEveryRankAndStay) {
  const auto result = staged_outcomes(2, [](StagedRank& rank, Communicator& staged) {
    const at::Tensor tensor = on_fake_device(at::ones({8 + rank.rank()}));
    EXPECT_THROW(staged.all_reduce(tensor).wait(), Error);
    staged.progress();
  });
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, RankOutcome::Kind::error);
    EXPECT_NE(rank.message.find("do not make the same call"), std::string::npos) << rank.message;
  }
}

TEST(StagedTransport, ALostPeerIsNamed) {
  const auto result = staged_outcomes(3, [](StagedRank& rank, Communicator& staged) {
    if (rank.rank() == 1) {
      throw std::runtime_error("rank 1 dies");
    }
    staged.all_reduce(on_fake_device(at::ones({8}))).wait();
  });
  for (const size_t k : {0, 2}) {
    EXPECT_EQ(result[k].kind, RankOutcome::Kind::communication_error) << result[k].message;
    EXPECT_NE(result[k].message.find("rank 1 has died or left"), std::string::npos);
  }
}

TEST(StagedTransport, ADeviceThatIsFullIsAnErrorOnEveryRank) {
  const auto ranks = staged_outcomes(2, [](StagedRank& rank, Communicator& staged) {
    rank.up->is_full = rank.rank() == 1;
    try {
      staged.allocate(64, at::kHalf);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::out_of_memory);
      rank.up->is_full = false;
      EXPECT_EQ(staged.allocate(64, at::kHalf).numel(), 64);
      throw;
    }
  });
  for (const RankOutcome& rank : ranks) {
    EXPECT_EQ(rank.message, "rank 1: no memory for a bucket of 64 Half: the device is full");
  }
}

TEST(StagedTransport, ARankWithoutPageLockedMemoryIsAnErrorOnEveryRankAndAllCanGoOn) {
  run_staged(2, [](StagedRank& rank, Communicator& staged) {
    const at::Tensor two = on_fake_device(at::ones({2})), four = on_fake_device(at::ones({4}));
    Work earlier = staged.all_reduce(two);
    for (const auto& [what, call] : std::vector<std::pair<std::string, std::function<Work()>>>{
             {"a broadcast of 4", [&] { return staged.broadcast(four, 1); }},
             {"a bucket of 9", [&] { return staged.allocate(9, at::kFloat), Work(); }}}) {
      rank.down->is_full = rank.rank() == 1;
      try {
        call();
        ADD_FAILURE() << what;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::out_of_memory);
        EXPECT_EQ(error.what(), "rank 1: no memory for " + what + " Float: no page-locked memory");
      }
      rank.down->is_full = false;
      call().wait();
    }
    earlier.wait();
    EXPECT_TRUE(at::equal(rank.read(two), at::full({2}, 2.0F)));
  });
}

/// A host collective that is complete when it is asked for the second time.
struct CompleteLater final : Operation {
  explicit CompleteLater(int asked) : left(asked) {}
  bool test() override { return left-- <= 0; }
  void wait() override { left = 0; }
  int left;
};

TEST(StagedTransport, NothingGoesUpBeforeWhatWasIssuedEarlier) {
  run_staged(1, [](StagedRank& rank, Communicator&) {
    StagedPipeline pipeline(rank.down, rank.up, rank.host, std::chrono::seconds(20));
    const auto add = [&](int asked) {
      const at::Tensor device = on_fake_device(at::ones({4}));
      const at::Tensor host = at::zeros({4});
      return pipeline.add(
          {{{host, device}},
           [asked](Communicator&) { return Work(std::make_shared<CompleteLater>(asked)); },
           {{host, device}}});
    };
    const uint64_t first = add(3), second = add(0);
    while (pipeline.mark_of(first) == nullptr && pipeline.finished() < first) {
      EXPECT_EQ(pipeline.mark_of(second), nullptr) << "its mark would not be after the first";
      rank.current.finish();
      pipeline.advance();
    }
    pipeline.wait_for(second);
  });
}

TEST(StagedTransport, SumsAndGathersGoOnWithoutPageLockedMemory) {
  run_staged(2, [](StagedRank& rank, Communicator& staged) {
    rank.down->is_full = rank.rank() == 1;
    const at::Tensor two = on_fake_device(at::ones({2})), four = on_fake_device(at::ones({4}));
    staged.all_reduce(two).wait();
    staged.reduce_scatter(two, four).wait();
    EXPECT_TRUE(at::equal(rank.read(two), at::full({2}, 2.0F)));
    staged.all_gather(four, two).wait();
    EXPECT_TRUE(at::equal(rank.read(four), at::full({4}, 2.0F)));
  });
}

/// Shares of 100 elements with chunks of 64 bytes: 5 or 8 of each share at a time.
TEST(StagedTransport, SharesTravelInChunksWithTheBitsOfWholeSums) {
  for (const int ranks : {2, 3}) {
    run_staged(ranks, [&](StagedRank& rank, Communicator& staged) {
      const auto values = [&](int r) { return at::arange(100 * ranks, at::kFloat) * 0.1 + r; };
      const at::Tensor all = on_fake_device(values(rank.rank()));
      const at::Tensor own = on_fake_device(at::zeros({100}));
      staged.reduce_scatter(own, all).wait();
      at::Tensor sum = values(0);
      for (int r = 1; r < ranks; ++r) {
        sum = sum + values(r);
      }
      EXPECT_TRUE(at::allclose(rank.read(own), sum.narrow(0, 100 * rank.rank(), 100)));
      staged.all_gather(all, own).wait();
      EXPECT_TRUE(at::allclose(rank.read(all), sum));
    });
  }
}

TEST(StagedTransport, ReduceScatterAndGatherWaitForNobodyBeforeTheirResultIsAsked) {
  run_staged(2, [](StagedRank& rank, Communicator& staged) {
    Communicator others = staged.split(0);
    const at::Tensor two = on_fake_device(at::ones({2})), four = on_fake_device(at::ones({4}));
    const auto scatter = [&] { return staged.reduce_scatter(two, four); };
    Work early = rank.rank() == 0 ? scatter() : Work();
    others.barrier().wait();  // rank 1 comes to its call after this alone
    Work late = rank.rank() == 1 ? scatter() : Work();
    early.wait();
    late.wait();
    EXPECT_TRUE(at::equal(rank.read(two), at::full({2}, 2.0F)));
  });
}

TEST(StagedTransport, CannotBePartOfAGraphAndSaysWhy) {
  run_staged(2, [](StagedRank&, Communicator& staged) {
    EXPECT_EQ(graph_capture_refusal(staged),
              "the collectives of the staged transport go through the host, which has no part in "
              "a CUDA graph");
    EXPECT_THROW(graph_capture(staged), Error);
  });
}

TEST(StagedTransport, SplitsAndAllocatesOnTheDevice) {
  run_staged(3, [](StagedRank& rank, Communicator& staged) {
    Communicator part = staged.split(rank.rank() == 2 ? 1 : 0);
    EXPECT_EQ(part.transport_name(), rank.rank() == 2 ? "solo" : "staged");
    const at::Tensor bucket = staged.allocate(20, at::kHalf);
    EXPECT_EQ(bucket.device(), kFakeDevice);
    EXPECT_TRUE(at::equal(rank.read(bucket), at::zeros({20}, at::kHalf)));
    EXPECT_FALSE(staged.split(-1).valid());
  });
}

}  // namespace
}  // namespace lockstep
