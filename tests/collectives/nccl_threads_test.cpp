// The training thread and the watchdog's thread of one communicator: NCCL takes one at a time.
#include "fake_device.h"
#include "fake_nccl.h"
#include "fake_stream.h"
#include "test_names.h"
#include "threads_that_block.h"

#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/nccl/nccl_comm.h>
#include <lockstep/collectives/nccl/watchdog.h>

#include <chrono>
#include <csignal>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

using namespace detail;

namespace {

constexpr int kManyTurns = 20000;  // for another thread to come in, if nothing holds it back

/// A communicator of one rank.
struct OneRank {
  explicit OneRank(FakeNccl::Script script = {})
      : nccl(std::make_shared<FakeNccl>(make_fake_nccl_world(), std::move(script))) {
    NcclApi::Id id{};
    nccl->make_id(&id);
    const OnFakeDevice on_device;
    comm = NcclComm::init(nccl, {id}, {0, 1}, {}, [] {});
  }
  void broadcast(std::optional<NcclStatus> answer = {}) {
    comm->call(
        "ncclBroadcast",
        [&](NcclApi& api, NcclApi::Handle handle) {
          const NcclStatus status = api.broadcast(&number, sizeof number, 0, handle, &stream);
          return answer.value_or(status);
        },
        [] {});
  }
  void expect_no_misuse() const { EXPECT_EQ(nccl->misuse(), std::vector<std::string>{}); }
  /// Gives another thread the time to abort, if nothing holds it back.
  void let_abort_begin() const {
    for (int turn = 0; turn < kManyTurns && nccl->count("abort") == 0; ++turn) {
      std::this_thread::yield();
    }
  }

  FakeStream stream;
  float number = 1.0F;
  std::shared_ptr<FakeNccl> nccl;
  std::shared_ptr<NcclComm> comm;
};

TEST(NcclThreads, TheWatchdogNeitherAsksNorWaitsWhileACallIsInside) {
  OneRank* rank = nullptr;
  int asked = 0;
  FakeNccl::Script script;
  script.inside = [&](const std::string& call) {
    if (call == "a collective") {
      std::thread([&] { EXPECT_EQ(rank->comm->failure(), ""); }).join();
      ++asked;
    }
  };
  OneRank one(script);
  rank = &one;
  one.broadcast();
  EXPECT_EQ(asked, 1);
  one.expect_no_misuse();
}

TEST(NcclThreads, AnAbortFreesNothingThatACallIsInside) {
  OneRank* rank = nullptr;
  std::thread aborts;
  FakeNccl::Script script;
  script.inside = [&](const std::string& call) {
    if (call == "a collective") {
      aborts = std::thread([&] { EXPECT_TRUE(rank->comm->abort()); });
      rank->let_abort_begin();
    }
  };
  OneRank one(script);
  rank = &one;
  try {
    one.broadcast();
  } catch (const CommunicationError& error) {
    EXPECT_NE(std::string(error.what()).find("was aborted meanwhile"), std::string::npos);
  }
  aborts.join();
  EXPECT_EQ(one.nccl->count("abort"), 1);
  EXPECT_THROW(one.broadcast(), CommunicationError);
  one.expect_no_misuse();
}

TEST(NcclThreads, NcclsLastWordsAreReadBeforeAnAbortFreesThem) {
  OneRank* rank = nullptr;
  std::thread aborts;
  FakeNccl::Script script;
  script.error_after = {{1, NcclStatus::remote_error}};
  script.inside = [&](const std::string& call) {
    if (call == "last_error") {
      aborts = std::thread([&] { EXPECT_TRUE(rank->comm->abort()); });
      rank->let_abort_begin();
    }
  };
  OneRank one(script);
  rank = &one;
  one.broadcast(NcclStatus::success);  // it fails later
  std::string words;
  std::thread watchdog([&] {
    while (words.empty()) {
      words = one.comm->failure();
    }
  });
  watchdog.join();
  aborts.join();
  EXPECT_EQ(words, "NCCL reports remote error: the fake's last words");
  one.expect_no_misuse();
}

TEST(NcclPrice, OneThreadForEachCallAndNoneForWhatLockstepAsks) {
  OneRank one;
  const int start = one.nccl->threads();
  for (int call = 1; call <= 10; ++call) {
    one.broadcast();
    EXPECT_EQ(one.comm->failure(), "");
    EXPECT_EQ(one.nccl->threads() - start, call);
  }
}

TEST(NcclPrice, ABlockingCallThatWaitsForAPeerIsFreedByTheAbortThatEndsIt) {
  FakeNccl::Script script;
  script.blocks = true;
  script.hangs_at = {1};
  FakeNccl nccl(make_fake_nccl_world(), script);
  NcclApi::Id id{};
  nccl.make_id(&id);
  NcclApi::Handle handle = nullptr;
  const OnFakeDevice on_device;
  nccl.init(&handle, 1, {id}, 0);
  FakeStream stream;
  float number = 1.0F;
  std::thread training([&] {
    EXPECT_EQ(nccl.broadcast(&number, sizeof number, 0, handle, &stream),
              NcclStatus::internal_error);
  });
  while (nccl.count("broadcast") == 0) {
    std::this_thread::yield();  // until the call is inside: it never returns by itself
  }
  nccl.abort(handle);
  training.join();
  EXPECT_EQ(nccl.threads(), 0);
  EXPECT_EQ(nccl.misuse(), std::vector<std::string>{"abort during a collective"});
}

TEST(NcclThreads, TheWatchdogLeavesTheSignalsOfTheProgramToItsOwnThreads) {
  const int before = threads_that_block(SIGUSR2);
  std::promise<int> within;
  const Watchdog watchdog(std::chrono::milliseconds(1), [&] {
    within.set_value(threads_that_block(SIGUSR2));
    return false;
  });
  EXPECT_EQ(within.get_future().get(), before + 1);
}

TEST(NcclThreads, AWatchdogThatAsksWithoutPauseMeetsNoCall) {
  OneRank one;
  std::atomic<bool> stop{false};
  std::thread watchdog([&] {
    while (!stop.load()) {
      EXPECT_EQ(one.comm->failure(), "");
    }
  });
  for (int call = 0; call < 300; ++call) {
    one.broadcast();
  }
  stop.store(true);
  watchdog.join();
  one.stream.finish();
  EXPECT_EQ(one.nccl->count("broadcast"), 300);
  one.expect_no_misuse();
}

}  // namespace
}  // namespace lockstep
