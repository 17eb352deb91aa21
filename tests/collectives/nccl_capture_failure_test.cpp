// What goes wrong while ranks capture collectives of NCCL, and while they launch the graphs.
#include "nccl_graphs.h"
#include "test_names.h"

#include <gmock/gmock.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>

namespace lockstep {

using namespace detail;

namespace {

using Kind = RankOutcome::Kind;

TEST(NcclGraphCapture, RanksThatRecordDifferentCallsAreTold) {
  const auto result = nccl_outcomes({2}, [](NcclRank& rank, Communicator& nccl) {
    FakeGraph graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4 + rank.rank(), 1));
    capture(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
  });
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, Kind::error);
    EXPECT_THAT(rank.message, HasSubstr("the ranks do not make the same call #1"));
  }
}

TEST(NcclGraphCapture, ARankThatCallsWhileAnotherReplaysIsTold) {
  const auto result = nccl_outcomes({2}, [](NcclRank& rank, Communicator& nccl) {
    FakeGraph graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4, 1));
    capture(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
    if (rank.rank() == 0) {
      graph_capture(nccl).launch(1, [&] { graph.launch(); });
    } else {
      nccl.all_reduce(tensor);
    }
    for (;;) {
      nccl.progress();
    }
  });
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, Kind::error);
    EXPECT_THAT(rank.message, HasSubstr("graph_launch #2 of 1 captured collectives"));
    EXPECT_THAT(rank.message, HasSubstr("all_reduce #2 of Float[4]"));
  }
}

TEST(NcclGraphCapture, APeerThatNeverReplaysIsFoundByTheDeadline) {
  NcclCase test;
  test.timeout = std::chrono::seconds(1);
  test.check = CollectiveCheck::off;
  const auto result = nccl_outcomes(test, [](NcclRank& rank, Communicator& nccl) {
    FakeGraph graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4, 1));
    capture(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
    graph_capture(nccl).launch(1, [&] { graph.launch(); });
    rank.current.finish();
    if (rank.rank() == 0) {
      graph_capture(nccl).launch(1, [&] { graph.launch(); });
      rank.current.finish();  // blocked until somebody aborts
      EXPECT_EQ(rank.nccl->count("abort"), 1);
      graph_capture(nccl).launch(1, [&] { graph.launch(); });
    }
  });
  EXPECT_EQ(result[0].kind, Kind::communication_error);
  EXPECT_THAT(result[0].message, HasSubstr("graph_launch #3 of 1 captured collectives timed out"));
  EXPECT_EQ(result[1].kind, Kind::returned) << result[1].message;
}

TEST(NcclGraphCapture, AReplayThatHangsOnOneRankIsAbortedOnAll) {
  NcclCase test;
  test.timeout = std::chrono::seconds(1);
  test.script = [](int rank, FakeNccl::Script& script) {
    if (rank == 1) {
      script.hangs_at = {3};
    }
  };
  const auto result = nccl_outcomes(test, [](NcclRank& rank, Communicator& nccl) {
    FakeGraph graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4, 1));
    capture(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
    for (int step = 0; step < 3; ++step) {
      graph_capture(nccl).launch(1, [&] { graph.launch(); });
      rank.current.finish();
    }
    EXPECT_EQ(rank.nccl->count("abort"), 1);
    graph_capture(nccl).launch(1, [&] { graph.launch(); });
  });
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, Kind::communication_error);
    EXPECT_THAT(rank.message, HasSubstr("graph_launch #4 of 1 captured collectives timed out"));
  }
}

TEST(NcclGraphCapture, ARankThatFailsStopsAllAtOnceWithOneErrorThatNamesIt) {
  for (const int fails_after : {0, 1, 2}) {  // the others wait in NCCL, or are done
    const auto result = nccl_outcomes({3}, [=](NcclRank& rank, Communicator& nccl) {
      const auto may_fail = [&](int calls) {
        LOCKSTEP_CHECK_CODE(rank.rank() != 1 || calls != fails_after, ExitCode::out_of_memory,
                            "no memory left");
      };
      const at::Tensor tensor = on_fake_device(full(4, 1));
      FakeGraph graph(rank.current);
      const auto work = [&] {
        may_fail(0);
        nccl.all_reduce(tensor).wait();
        may_fail(1);
        nccl.all_reduce(tensor).wait();
        may_fail(2);
      };
      try {
        capture(graph, nccl, work);
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
                "rank 1: no memory left; the NCCL communicator ended with this capture: restart "
                "from the last "
                "snapshot")
          << fails_after;
    }
  }
}

TEST(NcclGraphCapture, RanksThatFailTogetherAreAllQuoted) {
  const auto result = nccl_outcomes({2}, [](NcclRank& rank, Communicator& nccl) {
    FakeGraph graph(rank.current);
    capture(graph, nccl, [&] { LOCKSTEP_CHECK(false, "no file ", rank.rank()); });
  });
  for (const RankOutcome& rank : result) {
    EXPECT_THAT(rank.message, ::testing::StartsWith("rank 0: no file 0; "));
    EXPECT_THAT(rank.message, HasSubstr("; rank 1: no file 1; "));
  }
}

TEST(NcclGraphCapture, ARankWhoseNcclFailsInItStopsAllAtOnce) {
  NcclCase test;
  test.script = [](int rank, FakeNccl::Script& script) {
    if (rank == 1) {
      script.collective_fails = NcclStatus::system_error;
    }
  };
  const auto result = nccl_outcomes(test, [](NcclRank& rank, Communicator& nccl) {
    FakeGraph graph(rank.current);
    const at::Tensor tensor = on_fake_device(full(4, 1));
    capture(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
  });
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, Kind::error);
    EXPECT_THAT(rank.message, HasSubstr("rank 1: rank 1 of 2: ncclAllReduce: NCCL reports system"));
  }
}

TEST(NcclGraphCapture, AFailureDoesNotWaitForRecordsThatOnlyItsCallerCanDrop) {
  const auto world = make_fake_nccl_world();
  const NcclCase test;
  outcomes(2, [&](Communicator& host) {
    NcclRank rank(test, world, host);
    const auto start = std::chrono::steady_clock::now();
    {
      Communicator nccl = rank.start();
      FakeGraph graph(rank.current);
      const at::Tensor tensor = on_fake_device(full(4, 1));
      capture(graph, nccl, [&] { nccl.all_reduce(tensor).wait(); });
      EXPECT_THROW(graph_capture(nccl).launch(1, [] { TORCH_CHECK(false, "out of memory"); }),
                   c10::Error);
      EXPECT_EQ(rank.failures->load(), 1);
      EXPECT_EQ(rank.nccl->count("has aborted"), 0);
    }
    EXPECT_EQ(rank.nccl->count("has aborted"), 1) << "with the graph";
    EXPECT_LT(std::chrono::steady_clock::now() - start, test.abort_deadline);
  });
}

TEST(NcclGraphCapture, ARecordThatCannotBeLaunchedEndsTheCommunicator) {
  nccl_outcomes({2}, [](NcclRank& rank, Communicator& nccl) {
    const auto launch = [&] {
      graph_capture(nccl).launch(1, [] { TORCH_CHECK(false, "out of memory"); });
    };
    EXPECT_THROW(launch(), c10::Error);
    EXPECT_EQ(rank.nccl->count("abort"), 1);
    EXPECT_THROW(nccl.progress(), c10::Error);
  });
}

}  // namespace
}  // namespace lockstep
