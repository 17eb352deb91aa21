// Collectives of an NCCL transport as part of recorded device work. The device of these tests holds
// to the rules of CUDA graphs, and NCCL's ranks wait for each other while they record.
#include "nccl_ranks.h"
#include "verbs.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = RankOutcome::Kind;

at::Tensor full(int64_t numel, double value) {
  return at::full({numel}, value);
}

int64_t record(FakeRecord& record, Communicator& nccl, const std::function<void()>& work,
               Recording kind = Recording::real) {
  return nccl.record(kind, [&](const std::function<void()>& join) {
    record.capture([&] {
      work();
      join();
    });
  });
}

/// Something like a step: every collective, two under way at a time, the device computing between.
struct Step {
  explicit Step(NcclRank& rank, Communicator& nccl)
      : rank(rank),
        nccl(nccl),
        gradient(on_fake_device(uneven_numbers(rank.rank(), 20 * nccl.size()))),
        flag(on_fake_device(full(2, rank.rank()))),
        part(on_fake_device(at::zeros({20}))),
        whole(on_fake_device(at::zeros({20 * nccl.size()}))) {}

  void operator()() {
    rank.current.run([gradient = gradient, by = 1.0 + 0.1 * rank.rank()] {
      bytes_of_device(gradient).mul_(by).add_(0.25);
    });
    Work first = nccl.all_reduce(gradient, ReduceOp::avg());
    Work second = nccl.all_reduce(flag, ReduceOp::max());
    first.wait();
    nccl.reduce_scatter(part, gradient).wait();
    rank.current.run([part = part, by = rank.rank()] { bytes_of_device(part).sub_(by); });
    nccl.all_gather(whole, part).wait();
    nccl.broadcast(whole, nccl.size() - 1).wait();
    second.wait();
    rank.current.run([gradient = gradient, whole = whole] {
      bytes_of_device(gradient).sub_(bytes_of_device(whole)[3], 0.125);
    });
  }
  std::vector<at::Tensor> results() const {
    return {rank.read(gradient), rank.read(flag), rank.read(part), rank.read(whole)};
  }

  NcclRank& rank;
  Communicator& nccl;
  at::Tensor gradient, flag, part, whole;
};

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

TEST(NcclRecording, RanksThatRecordDifferentCallsAreTold) {
  const auto result = nccl_outcomes({2}, [](NcclRank& rank, Communicator& nccl) {
    FakeRecord graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4 + rank.rank(), 1));
    record(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
  });
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, Kind::error);
    EXPECT_THAT(rank.message, HasSubstr("the ranks do not make the same call #1"));
  }
}

TEST(NcclRecording, ARankThatCallsWhileAnotherReplaysIsTold) {
  const auto result = nccl_outcomes({2}, [](NcclRank& rank, Communicator& nccl) {
    FakeRecord graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4, 1));
    record(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
    if (rank.rank() == 0) {
      nccl.replay(1, [&] { graph.replay(); });
    } else {
      nccl.all_reduce(tensor);
    }
    for (;;) {
      nccl.progress();
    }
  });
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, Kind::error);
    EXPECT_THAT(rank.message, HasSubstr("replay #2 of 1 recorded collectives"));
    EXPECT_THAT(rank.message, HasSubstr("all_reduce #2 of Float[4]"));
  }
}

TEST(NcclRecording, APeerThatNeverReplaysIsFoundByTheDeadline) {
  NcclCase test;
  test.timeout = std::chrono::seconds(1);
  test.check = CollectiveCheck::off;
  const auto result = nccl_outcomes(test, [](NcclRank& rank, Communicator& nccl) {
    FakeRecord graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4, 1));
    record(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
    nccl.replay(1, [&] { graph.replay(); });
    rank.current.finish();
    if (rank.rank() == 0) {
      nccl.replay(1, [&] { graph.replay(); });
      rank.current.finish();  // blocked until somebody aborts
      EXPECT_EQ(rank.nccl->count("abort"), 1);
      nccl.replay(1, [&] { graph.replay(); });
    }
  });
  EXPECT_EQ(result[0].kind, Kind::communication_error);
  EXPECT_THAT(result[0].message, HasSubstr("replay #3 of 1 recorded collectives timed out"));
  EXPECT_EQ(result[1].kind, Kind::returned) << result[1].message;
}

TEST(NcclRecording, AReplayThatHangsOnOneRankIsAbortedOnAll) {
  NcclCase test;
  test.timeout = std::chrono::seconds(1);
  test.script = [](int rank, FakeNccl::Script& script) {
    if (rank == 1) {
      script.hangs_at = {3};
    }
  };
  const auto result = nccl_outcomes(test, [](NcclRank& rank, Communicator& nccl) {
    FakeRecord graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4, 1));
    record(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
    for (int step = 0; step < 3; ++step) {
      nccl.replay(1, [&] { graph.replay(); });
      rank.current.finish();
    }
    EXPECT_EQ(rank.nccl->count("abort"), 1);
    nccl.replay(1, [&] { graph.replay(); });
  });
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, Kind::communication_error);
    EXPECT_THAT(rank.message, HasSubstr("replay #4 of 1 recorded collectives timed out"));
  }
}

TEST(NcclRecording, ARankThatFailsStopsAllAtOnceWithOneErrorThatNamesIt) {
  for (const int fails_after : {0, 1, 2}) {  // the others wait in NCCL, or are done
    const auto result = nccl_outcomes({3}, [=](NcclRank& rank, Communicator& nccl) {
      const auto may_fail = [&](int calls) {
        LOCKSTEP_CHECK_CODE(rank.rank() != 1 || calls != fails_after, ExitCode::out_of_memory,
                            "no memory left");
      };
      const at::Tensor tensor = on_fake_device(full(4, 1));
      FakeRecord graph(rank.current);
      const auto work = [&] {
        may_fail(0);
        nccl.all_reduce(tensor).wait();
        may_fail(1);
        nccl.all_reduce(tensor).wait();
        may_fail(2);
      };
      try {
        record(graph, nccl, work);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::out_of_memory);
      }
      EXPECT_EQ(rank.failures->load(), 1);
      while (rank.nccl->count("abort") == 0) {  // on a thread of its own
        std::this_thread::yield();
      }
      nccl.all_reduce(tensor);
    });
    for (const RankOutcome& rank : result) {
      EXPECT_EQ(rank.kind, Kind::error);
      EXPECT_EQ(rank.message,
                "rank 1: no memory left; NCCL has ended with that record: restart from the last "
                "snapshot")
          << fails_after;
    }
  }
}

TEST(NcclRecording, RanksThatFailTogetherAreAllQuoted) {
  const auto result = nccl_outcomes({2}, [](NcclRank& rank, Communicator& nccl) {
    FakeRecord graph(rank.current);
    record(graph, nccl, [&] { LOCKSTEP_CHECK(false, "no file ", rank.rank()); });
  });
  for (const RankOutcome& rank : result) {
    EXPECT_THAT(rank.message, ::testing::StartsWith("rank 0: no file 0; "));
    EXPECT_THAT(rank.message, HasSubstr("; rank 1: no file 1; "));
  }
}

TEST(NcclRecording, ARankWhoseNcclFailsInItStopsAllAtOnce) {
  NcclCase test;
  test.script = [](int rank, FakeNccl::Script& script) {
    if (rank == 1) {
      script.collective_fails = NcclStatus::system_error;
    }
  };
  const auto result = nccl_outcomes(test, [](NcclRank& rank, Communicator& nccl) {
    FakeRecord graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4, 1));
    record(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
  });
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, Kind::error);
    EXPECT_THAT(rank.message, HasSubstr("rank 1: rank 1 of 2: ncclAllReduce: NCCL reports system"));
  }
}

TEST(NcclRecording, AFailureDoesNotWaitForRecordsThatOnlyItsCallerCanDrop) {
  const auto world = make_fake_nccl_world();
  const NcclCase test;
  outcomes(2, [&](Communicator& host) {
    NcclRank rank(test, world, host);
    const auto start = std::chrono::steady_clock::now();
    {
      Communicator nccl = rank.start();
      FakeRecord graph(rank.current);
      const at::Tensor tensor = on_fake_device(full(4, 1));
      record(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
      EXPECT_THROW(nccl.replay(1, [] { TORCH_CHECK(false, "out of memory"); }), c10::Error);
      EXPECT_EQ(rank.failures->load(), 1);
      EXPECT_EQ(rank.nccl->count("has aborted"), 0);
    }
    EXPECT_EQ(rank.nccl->count("has aborted"), 1) << "with the record";
    EXPECT_LT(std::chrono::steady_clock::now() - start, test.abort_deadline);
  });
}

TEST(NcclRecording, ARecordThatCannotBeLaunchedEndsTheCommunicator) {
  nccl_outcomes({2}, [](NcclRank& rank, Communicator& nccl) {
    const auto launch = [&] { nccl.replay(1, [] { TORCH_CHECK(false, "out of memory"); }); };
    EXPECT_THROW(launch(), c10::Error);
    EXPECT_EQ(rank.nccl->count("abort"), 1);
    EXPECT_THROW(nccl.progress(), c10::Error);
  });
}

}  // namespace
}  // namespace lockstep
