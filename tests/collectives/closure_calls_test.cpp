// A rank that fails leaves its peers in no collective: they leave with it, and all go on together.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/closure_calls.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "error_of.h"
#include "mpi_nodes.h"
#include "mpi_world.h"
#include "test_names.h"
#include "verbs.h"

namespace lockstep {

using namespace detail;

namespace {

/// All ranks on these nodes, a part of all of them, and a shared buffer.
struct Calls {
  explicit Calls(const Layout& nodes, const CommunicatorOptions& options = {})
      : world(with_closure_calls(on_nodes(nodes, options))),
        part(world.split(0)),
        calls(*closure_calls(world)),
        buffer(part.allocate(70001, at::kFloat)) {}

  bool is(int rank) const { return world.rank() == rank; }
  /// This rank fails; the others follow. The Error that each rank gets.
  Error meet(int failing) {
    return calls.meet(is(failing)
                          ? std::optional<Error>(Error("sample 17 is damaged", ExitCode::data))
                          : std::nullopt);
  }

  Communicator world;
  Communicator part;
  ClosureCalls calls;
  at::Tensor buffer;
};

/// One node; a node for each rank; two nodes.
std::vector<Layout> layouts() {
  const auto ranks = static_cast<size_t>(world().size());
  Layout one(ranks, 0);
  Layout each(ranks, 0);
  Layout two(ranks, 0);
  for (size_t rank = 0; rank < ranks; ++rank) {
    each[rank] = static_cast<int>(rank);
    two[rank] = rank < (ranks + 1) / 2 ? 0 : 1;
  }
  return ranks == 2 ? std::vector<Layout>{one, each} : std::vector<Layout>{one, each, two};
}

/// Runs `body` in each layout, with each rank as the one that fails.
void with_each_failing_rank(const std::function<void(Calls&, int failing)>& body) {
  for (const Layout& nodes : layouts()) {
    Calls ranks(nodes);
    for (int failing = 0; failing < world().size(); ++failing) {
      SCOPED_TRACE(c10::str(text_of(nodes), ", rank ", failing, " fails"));
      body(ranks, failing);
    }
  }
}

void expect_right_calls(Calls& ranks) {
  for (Communicator* each : {&ranks.world, &ranks.part}) {
    for (const int64_t numel : {1, 70001}) {
      check_all_reduce(*each, numel, at::kFloat, ReduceOp::sum(), /*in_window=*/false);
      check_all_gather(*each, numel, at::kFloat);
      check_reduce_scatter(*each, numel, at::kFloat, ReduceOp::sum());
      check_broadcast(*each, numel, at::kFloat, each->size() - 1);
    }
    each->barrier().wait();
  }
  ranks.buffer.fill_(1);
  ranks.part.all_reduce(ranks.buffer).wait();
  EXPECT_TRUE(ranks.buffer.eq(ranks.part.size()).all().item<bool>());
  Communicator part = ranks.world.split(0);
  check_all_reduce(part, 9, at::kFloat, ReduceOp::sum(), /*in_window=*/true);
}

TEST(ClosureCalls, APeerThatWaitsInAnyCallLeavesWithTheRankThatFails) {
  const std::vector<std::pair<std::string, std::function<void(Calls&, Communicator&)>>> verbs = {
      {"small all_reduce", [](auto&, auto& ranks) { ranks.all_reduce(at::ones({3})).wait(); }},
      {"large all_reduce", [](auto&, auto& ranks) { ranks.all_reduce(at::ones({600001})).wait(); }},
      {"shared buffer", [](auto& all, auto&) { all.part.all_reduce(all.buffer).wait(); }},
      {"all_gather",
       [](auto&, auto& ranks) {
         ranks.all_gather(at::ones({ranks.size() * 300001}), at::ones({300001})).wait();
       }},
      {"reduce_scatter",
       [](auto&, auto& ranks) {
         ranks.reduce_scatter(at::ones({70001}), at::ones({ranks.size() * 70001})).wait();
       }},
      {"broadcast", [](auto&, auto& ranks) { ranks.broadcast(at::ones({300001}), 0).wait(); }},
      {"barrier", [](auto&, auto& ranks) { ranks.barrier().wait(); }},
      {"bytes", [](auto&, auto& ranks) { std::ignore = ranks.all_gather_bytes("text"); }},
      {"split", [](auto&, auto& ranks) { std::ignore = ranks.split(0); }},
      {"allocate", [](auto&, auto& ranks) { std::ignore = ranks.allocate(9, at::kFloat); }},
      {"test()", [](auto&, auto& ranks) {
         for (Work work = ranks.barrier(); !work.test();) {
         }
       }}};
  with_each_failing_rank([&](Calls& ranks, int failing) {
    for (const auto& [name, call] : verbs) {
      for (Communicator* each : {&ranks.world, &ranks.part}) {
        SCOPED_TRACE(name);
        std::optional<PeerStepFailed> heard;
        if (!ranks.is(failing)) {
          try {
            call(ranks, *each);
          } catch (const PeerStepFailed& error) {
            heard = error;
          }
          ASSERT_TRUE(heard.has_value());
          EXPECT_EQ(heard->rank(), failing);
          EXPECT_EQ(heard->code(), ExitCode::data);
          EXPECT_THAT(heard->what(), HasSubstr("sample 17 is damaged"));
        }
        const Error all = ranks.meet(failing);
        EXPECT_EQ(all.what(), c10::str("rank ", failing, ": sample 17 is damaged"));
        EXPECT_EQ(all.code(), ExitCode::data);
      }
    }
    expect_right_calls(ranks);
  });
}

TEST(ClosureCalls, WhatEveryRankHasCalledIsCompletedAndTheRestIsAbandoned) {
  with_each_failing_rank([](Calls& ranks, int failing) {
    const int calls = ranks.is(failing) ? 3 : 3 + ranks.world.rank();
    for (Communicator* each : {&ranks.world, &ranks.part}) {
      std::vector<std::pair<at::Tensor, Work>> works;
      for (int k = 0; k < calls; ++k) {
        const at::Tensor sum = at::ones({k % 2 == 0 ? 5 : 300001});
        Work work = each->all_reduce(sum);
        works.emplace_back(sum, std::move(work));
      }
      if (!ranks.is(failing)) {
        const at::Tensor next = at::ones({calls % 2 == 0 ? 5 : 300001});
        EXPECT_THROW(each->all_reduce(next).wait(), PeerStepFailed);
      }
      ranks.meet(failing);
      for (size_t k = 0; k < works.size(); ++k) {
        if (k < 3) {
          works[k].second.wait();
          EXPECT_TRUE(works[k].first.eq(each->size()).all().item<bool>()) << "call " << k;
        } else {
          EXPECT_THROW(works[k].second.wait(), PeerStepFailed) << "call " << k;
        }
      }
    }
    expect_right_calls(ranks);
  });
}

TEST(ClosureCalls, ACommunicatorThatGotDifferentCallsFromItsRanksIsNotUsedAgain) {
  if (world().size() < 3) {
    GTEST_SKIP() << "two ranks that do not fail are needed";
  }
  Calls ranks(layouts().front());
  if (ranks.world.rank() == 1) {
    EXPECT_THROW(ranks.part.all_reduce(at::ones({600001})).wait(), PeerStepFailed);
  } else if (ranks.world.rank() != 0) {
    EXPECT_THROW(ranks.part.barrier().wait(), PeerStepFailed);
  }
  ranks.meet(0);
  EXPECT_THAT(error_of([&] { ranks.part.barrier().wait(); }),
              HasSubstr("got different calls from its ranks; make another one with split()"));
  check_all_reduce(ranks.world, 9, at::kFloat, ReduceOp::sum(), /*in_window=*/false);
}

TEST(ClosureCalls, ARankThatHasLeftCallsNothingUntilAllHaveMet) {
  with_each_failing_rank([](Calls& ranks, int failing) {
    if (!ranks.is(failing)) {
      EXPECT_THROW(ranks.part.barrier().wait(), PeerStepFailed);
      EXPECT_THROW(ranks.part.barrier().wait(), PeerStepFailed);
      EXPECT_THROW(std::ignore = ranks.world.all_gather_bytes("text"), PeerStepFailed);
    }
    ranks.meet(failing);
    expect_right_calls(ranks);
  });
}

TEST(ClosureCalls, RanksThatDoNotWaitForTheOneThatFailsGoOn) {
  with_each_failing_rank([](Calls& ranks, int failing) {
    Communicator others = ranks.world.split(ranks.is(failing) ? 1 : 0);
    if (!ranks.is(failing)) {
      for (int k = 0; k < 20; ++k) {
        check_all_reduce(others, 70001, at::kFloat, ReduceOp::sum(), /*in_window=*/false);
      }
      EXPECT_THROW(ranks.world.barrier().wait(), PeerStepFailed);
    }
    ranks.meet(failing);
    check_all_reduce(others, 70001, at::kFloat, ReduceOp::sum(), /*in_window=*/false);
    expect_right_calls(ranks);
  });
}

TEST(ClosureCalls, SeveralRanksThatFailAreAllQuoted) {
  for (const Layout& nodes : layouts()) {
    Calls ranks(nodes);
    const bool is_last = ranks.is(world().size() - 1);
    if (!ranks.is(0) && !is_last) {
      EXPECT_THROW(ranks.part.barrier().wait(), PeerStepFailed);
    }
    std::optional<Error> mine;
    if (ranks.is(0) || is_last) {
      mine = Error(is_last ? "no memory" : "no file",
                   is_last ? ExitCode::out_of_memory : ExitCode::data);
    }
    const Error all = ranks.calls.meet(mine);
    EXPECT_EQ(all.what(), c10::str("rank 0: no file; rank ", world().size() - 1, ": no memory"));
    EXPECT_EQ(all.code(), ExitCode::data);
    expect_right_calls(ranks);
  }
}

TEST(ClosureCalls, ACommunicatorThatAnExceptionDestroysEndsTheWaitOfItsPeers) {
  with_each_failing_rank([](Calls& ranks, int failing) {
    try {
      const Communicator of_closure = ranks.world.split(0);
      if (ranks.is(failing)) {
        throw Error("half way");
      }
      of_closure.barrier().wait();
    } catch (const PeerStepFailed& error) {
      EXPECT_FALSE(ranks.is(failing)) << error.what();
      EXPECT_EQ(error.rank(), failing);
    } catch (const Error& error) {
      EXPECT_TRUE(ranks.is(failing)) << error.what();
    }
    EXPECT_EQ(ranks.meet(failing).code(), ExitCode::data);
    expect_right_calls(ranks);
  });
}

TEST(ClosureCalls, ARankThatDoesNotComeIsALostPeerAndTheCauseStays) {
  CommunicatorOptions impatient;
  impatient.timeout = std::chrono::milliseconds(300);
  for (const Layout& nodes : layouts()) {
    Calls ranks(nodes, impatient);
    if (!ranks.is(0)) {
      try {
        ranks.meet(world().size() - 1);
        ADD_FAILURE() << "rank 0 was not missed";
      } catch (const CommunicationError& error) {
        const bool failed = ranks.is(world().size() - 1);
        EXPECT_EQ(error.code(), failed ? ExitCode::data : ExitCode::peer_lost);
        EXPECT_THAT(error.what(), HasSubstr("could not leave the step together"));
      }
      EXPECT_THROW(ranks.world.barrier().wait(), CommunicationError);
    }
    world().barrier().wait();
  }
}

}  // namespace
}  // namespace lockstep
