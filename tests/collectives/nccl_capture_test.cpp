// Collectives of an NCCL transport as part of CUDA graphs. The device of these tests holds
// to the rules of CUDA graphs, and NCCL's ranks wait for each other during capture.
#include "nccl_graphs.h"
#include "test_names.h"

#include <gmock/gmock.h>
#include <lockstep/collectives/exceptions.h>

namespace lockstep {

using namespace detail;

namespace {

using Kind = RankOutcome::Kind;

TEST(NcclGraphCapture, ReplaysHaveTheBitsOfCalls) {
  for (const int ranks : {2, 3}) {
    run_nccl({ranks}, [](NcclRank& rank, Communicator& nccl) {
      constexpr int steps = 7;
      Step called(rank, nccl), replayed(rank, nccl);
      for (int step = 0; step < steps; ++step) {
        called();
      }
      FakeGraph graph(rank.current);
      EXPECT_EQ(capture(graph, nccl, replayed), 5);
      for (int step = 0; step < steps; ++step) {
        graph_capture(nccl).launch(5, [&] { graph.launch(); });
      }
      const auto expected = called.results(), found = replayed.results();
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(same_bits(found[i], expected[i])) << i;
      }
    });
  }
}

TEST(NcclPrice, ALaunchOfAGraphMakesNoThread) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    Step step(rank, nccl);
    FakeGraph graph(rank.current);
    const int64_t captured = capture(graph, nccl, step);
    const int threads = rank.nccl->threads();
    for (int launch = 0; launch < 3; ++launch) {
      graph_capture(nccl).launch(captured, [&] { graph.launch(); });
    }
    EXPECT_EQ(rank.nccl->threads(), threads);
  });
}

TEST(NcclGraphCapture, NothingRunsBeforeTheReplay) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor tensor = on_fake_device(full(4, 1));
    FakeGraph graph(rank.current);
    capture(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 1)));
    graph_capture(nccl).launch(1, [&] { graph.launch(); });
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 2)));
  });
}

TEST(NcclGraphCapture, ARehearsalAsksNeitherNcclNorOtherRanksAndIsInNoLog) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const auto calls = rank.nccl->calls();
    if (rank.rank() == 0) {
      Step step(rank, nccl);
      FakeGraph graph(rank.current);
      EXPECT_EQ(capture(graph, nccl, step, CaptureKind::rehearsal), 5);
    }
    EXPECT_EQ(rank.nccl->count("all_reduce"), 0);
    EXPECT_EQ(nccl.collective_log(), "");
  });
}

TEST(NcclGraphCapture, ARankWhoseRehearsalFailsGoesOnWithTheOthers) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    Step step(rank, nccl);
    FakeGraph graph(rank.current);
    const auto work = [&] {
      step();
      TORCH_CHECK(rank.rank() == 0, "operation not permitted when stream is capturing");
    };
    if (rank.rank() == 0) {
      capture(graph, nccl, work, CaptureKind::rehearsal);
    } else {
      EXPECT_THROW(capture(graph, nccl, work, CaptureKind::rehearsal), c10::Error);
    }
    const at::Tensor tensor = on_fake_device(full(4, 1));
    nccl.all_reduce(tensor).wait();
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 2)));
    EXPECT_EQ(rank.failures->load(), 0);
  });
}

TEST(NcclGraphCapture, EachReplayIsOneCallOfTheLogWithTheSameNumberOnAllRanks) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor tensor = on_fake_device(full(4, 1));
    nccl.all_reduce(tensor).wait();
    FakeGraph graph(rank.current);
    const auto work = [&] {
      nccl.all_reduce(tensor).wait();
      nccl.broadcast(tensor).wait();
    };
    capture(graph, nccl, work, CaptureKind::rehearsal);
    FakeGraph again(rank.current);
    capture(again, nccl, work);
    graph_capture(nccl).launch(2, [&] { again.launch(); });
    graph_capture(nccl).launch(2, [&] { again.launch(); });
    rank.current.finish();
    rank.lane->drain();
    nccl.progress();
    const std::string log = nccl.collective_log();
    EXPECT_THAT(log, HasSubstr("all_reduce #1 of Float[4], sum: complete"));
    EXPECT_THAT(log, HasSubstr("all_reduce #2 of Float[4], sum: captured"));
    EXPECT_THAT(log, HasSubstr("broadcast #3 of Float[4], root 0: captured"));
    EXPECT_THAT(log, HasSubstr("graph_launch #4 of 2 captured collectives: complete"));
    EXPECT_THAT(log, HasSubstr("graph_launch #5 of 2 captured collectives: complete"));
  });
}

TEST(NcclGraphCapture, WaitsUntilNothingIsUnderWay) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    std::atomic<int> asked{0};
    rank.current.put([&] { return ++asked == 1000; });
    const at::Tensor tensor = on_fake_device(full(4, 1));
    nccl.all_reduce(tensor);
    FakeGraph graph(rank.current);
    capture(graph, nccl, [&] {
      EXPECT_EQ(asked.load(), 1000);
      nccl.all_reduce(tensor).wait();
    });
  });
}

TEST(NcclGraphCapture, RecordsOfSeveralShapesTakeTurnsWithCalls) {
  run_nccl({3}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor small = on_fake_device(full(4, 1)), large = on_fake_device(full(9, 1));
    FakeGraph of_small(rank.current), of_large(rank.current);
    const auto sum = [&](const at::Tensor& tensor) { nccl.all_reduce(tensor).wait(); };
    capture(of_small, nccl, [&] { sum(small); });
    graph_capture(nccl).launch(1, [&] { of_small.launch(); });
    capture(of_large, nccl, [&] { sum(large); });
    graph_capture(nccl).launch(1, [&] { of_large.launch(); });
    Work dropped = nccl.all_reduce(small);
    graph_capture(nccl).launch(1, [&] { of_small.launch(); });
    sum(large);
    EXPECT_TRUE(at::equal(rank.read(small), full(4, 27)));
    EXPECT_TRUE(at::equal(rank.read(large), full(9, 9)));
  });
}

TEST(NcclGraphCapture, RefusesWhatTheHostTakesPartIn) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor host = full(4, 1);
    for (const auto& [what, call] : std::vector<std::pair<const char*, std::function<void()>>>{
             {"host tensor", [&] { nccl.all_reduce(host); }},
             {"barrier", [&] { nccl.barrier(); }},
             {"split", [&] { nccl.split(0); }},
             {"allocate", [&] { nccl.allocate(4, at::kFloat); }}}) {
      std::string message;
      try {
        FakeGraph graph(rank.current);
        capture(graph, nccl, call, CaptureKind::rehearsal);
      } catch (const Error& error) {
        message = error.what();
      }
      EXPECT_THAT(message, HasSubstr(what));
      EXPECT_THAT(message, HasSubstr("cannot be captured"));
    }
    nccl.barrier().wait();
    EXPECT_EQ(nccl.split(0).size(), 2);
  });
}

TEST(NcclGraphCapture, ARecordedCollectiveCannotBeTested) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    FakeGraph graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4, 1));
    capture(graph, nccl, [&] {
      Work work = nccl.all_reduce(tensor);
      EXPECT_THROW(work.test(), Error);
      work.wait();
    });
  });
}

TEST(NcclGraphCapture, ACollectiveThatNobodyWaitedForIsJoined) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    FakeGraph graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4, 1));
    capture(graph, nccl, [&] { nccl.all_reduce(tensor); });
    graph_capture(nccl).launch(1, [&] { graph.launch(); });
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 2)));
  });
}

}  // namespace
}  // namespace lockstep
