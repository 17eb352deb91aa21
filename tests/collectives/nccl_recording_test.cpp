// Collectives of an NCCL transport as part of recorded device work. The device of these tests holds
// to the rules of CUDA graphs, and NCCL's ranks wait for each other while they record.
#include "nccl_records.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = RankOutcome::Kind;

TEST(NcclRecording, ReplaysHaveTheBitsOfCalls) {
  for (const int ranks : {2, 3}) {
    run_nccl({ranks}, [](NcclRank& rank, Communicator& nccl) {
      constexpr int steps = 7;
      Step called(rank, nccl), replayed(rank, nccl);
      for (int step = 0; step < steps; ++step) {
        called();
      }
      FakeRecord graph(rank.current);
      EXPECT_EQ(record(graph, nccl, replayed), 5);
      for (int step = 0; step < steps; ++step) {
        nccl.replay(5, [&] { graph.replay(); });
      }
      const auto expected = called.results(), found = replayed.results();
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(same_bits(found[i], expected[i])) << i;
      }
    });
  }
}

TEST(NcclRecording, NothingRunsBeforeTheReplay) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor tensor = on_fake_device(full(4, 1));
    FakeRecord graph(rank.current);
    record(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 1)));
    nccl.replay(1, [&] { graph.replay(); });
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 2)));
  });
}

TEST(NcclRecording, ARehearsalAsksNeitherNcclNorOtherRanksAndIsInNoLog) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const auto calls = rank.nccl->calls();
    if (rank.rank() == 0) {
      Step step(rank, nccl);
      FakeRecord graph(rank.current);
      EXPECT_EQ(record(graph, nccl, step, Recording::rehearsal), 5);
    }
    EXPECT_EQ(rank.nccl->count("all_reduce"), 0);
    EXPECT_EQ(nccl.collective_log(), "");
  });
}

TEST(NcclRecording, ARankWhoseRehearsalFailsGoesOnWithTheOthers) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    Step step(rank, nccl);
    FakeRecord graph(rank.current);
    const auto work = [&] {
      step();
      TORCH_CHECK(rank.rank() == 0, "operation not permitted when stream is capturing");
    };
    if (rank.rank() == 0) {
      record(graph, nccl, work, Recording::rehearsal);
    } else {
      EXPECT_THROW(record(graph, nccl, work, Recording::rehearsal), c10::Error);
    }
    const at::Tensor tensor = on_fake_device(full(4, 1));
    nccl.all_reduce(tensor).wait();
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 2)));
    EXPECT_EQ(rank.failures->load(), 0);
  });
}

TEST(NcclRecording, EachReplayIsOneCallOfTheLogWithTheSameNumberOnAllRanks) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor tensor = on_fake_device(full(4, 1));
    nccl.all_reduce(tensor).wait();
    FakeRecord graph(rank.current);
    const auto work = [&] {
      nccl.all_reduce(tensor).wait();
      nccl.broadcast(tensor).wait();
    };
    record(graph, nccl, work, Recording::rehearsal);
    FakeRecord again(rank.current);
    record(again, nccl, work);
    nccl.replay(2, [&] { again.replay(); });
    nccl.replay(2, [&] { again.replay(); });
    rank.current.finish();
    rank.lane->drain();
    nccl.progress();
    const std::string log = nccl.collective_log();
    EXPECT_THAT(log, HasSubstr("all_reduce #1 of Float[4], sum: complete"));
    EXPECT_THAT(log, HasSubstr("all_reduce #2 of Float[4], sum: recorded"));
    EXPECT_THAT(log, HasSubstr("broadcast #3 of Float[4], root 0: recorded"));
    EXPECT_THAT(log, HasSubstr("replay #4 of 2 recorded collectives: complete"));
    EXPECT_THAT(log, HasSubstr("replay #5 of 2 recorded collectives: complete"));
  });
}

TEST(NcclRecording, WaitsUntilNothingIsUnderWay) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    std::atomic<int> asked{0};
    rank.current.put([&] { return ++asked == 1000; });
    const at::Tensor tensor = on_fake_device(full(4, 1));
    nccl.all_reduce(tensor);
    FakeRecord graph(rank.current);
    record(graph, nccl, [&] {
      EXPECT_EQ(asked.load(), 1000);
      nccl.all_reduce(tensor).wait();
    });
  });
}

TEST(NcclRecording, RecordsOfSeveralShapesTakeTurnsWithCalls) {
  run_nccl({3}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor small = on_fake_device(full(4, 1)), large = on_fake_device(full(9, 1));
    FakeRecord of_small(rank.current), of_large(rank.current);
    const auto sum = [&](const at::Tensor& tensor) { nccl.all_reduce(tensor).wait(); };
    record(of_small, nccl, [&] { sum(small); });
    nccl.replay(1, [&] { of_small.replay(); });
    record(of_large, nccl, [&] { sum(large); });
    nccl.replay(1, [&] { of_large.replay(); });
    Work dropped = nccl.all_reduce(small);
    nccl.replay(1, [&] { of_small.replay(); });
    sum(large);
    EXPECT_TRUE(at::equal(rank.read(small), full(4, 27)));
    EXPECT_TRUE(at::equal(rank.read(large), full(9, 9)));
  });
}

TEST(NcclRecording, RefusesWhatTheHostTakesPartIn) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor host = full(4, 1);
    for (const auto& [what, call] : std::vector<std::pair<const char*, std::function<void()>>>{
             {"host tensor", [&] { nccl.all_reduce(host); }},
             {"barrier", [&] { nccl.barrier(); }},
             {"split", [&] { nccl.split(0); }},
             {"allocate", [&] { nccl.allocate(4, at::kFloat); }}}) {
      std::string message;
      try {
        FakeRecord graph(rank.current);
        record(graph, nccl, call, Recording::rehearsal);
      } catch (const Error& error) {
        message = error.what();
      }
      EXPECT_THAT(message, HasSubstr(what));
      EXPECT_THAT(message, HasSubstr("cannot be recorded"));
    }
    nccl.barrier().wait();
    EXPECT_EQ(nccl.split(0).size(), 2);
  });
}

TEST(NcclRecording, ARecordedCollectiveCannotBeTested) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    FakeRecord graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4, 1));
    record(graph, nccl, [&] {
      Work work = nccl.all_reduce(tensor);
      EXPECT_THROW(work.test(), Error);
      work.wait();
    });
  });
}

TEST(NcclRecording, ACollectiveThatNobodyWaitedForIsJoined) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    FakeRecord graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4, 1));
    record(graph, nccl, [&] { nccl.all_reduce(tensor); });
    nccl.replay(1, [&] { graph.replay(); });
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 2)));
  });
}

}  // namespace
}  // namespace lockstep
