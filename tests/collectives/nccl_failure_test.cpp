// How an NCCL transport ends: refusals at the start, errors, hangs, lost peers, aborts.
#include "nccl_outcomes.h"
#include "test_names.h"

#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/loaded_libraries.h>
#include <lockstep/collectives/nccl/nccl_bootstrap.h>

#include <c10/util/ScopeExit.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace lockstep {

using namespace detail;

namespace {

using Kind = RankOutcome::Kind;

NcclCase scripted(int ranks, int culprit, std::function<void(FakeNccl::Script&)> fault) {
  NcclCase test;
  test.ranks = ranks;
  test.script = [culprit, fault = std::move(fault)](int rank, FakeNccl::Script& script) {
    if (rank == culprit) {
      fault(script);
    }
  };
  return test;
}

TEST(NcclStart, DifferentVersionsAreRefusedOnEveryRank) {
  const auto result =
      nccl_outcomes(scripted(3, 2, [](FakeNccl::Script& script) { script.version = 23003; }),
                    [](NcclRank&, Communicator&) {});
  expect_all(result, Kind::error, "rank 0 has NCCL 2.28.9, rank 2 2.30.3");
}

TEST(NcclStart, TwoRanksOnOneGpuAreRefusedByOldNccl) {
  NcclCase test{2};
  test.device_id = [](int) { return "GPU-1234"; };
  expect_all(nccl_outcomes(test, [](NcclRank&, Communicator&) {}), Kind::error,
             "ranks 0 and 1 use one GPU (GPU-1234), which NCCL 2.28.9 refuses and 2.30.3 allows");
}

TEST(NcclStart, TwoRanksOnOneGpuNeedNewNcclAndTheVariable) {
  const std::vector<NcclPeer> silent{{23003, false, "a"}, {23003, false, "a"}};
  EXPECT_NE(nccl_refusal(silent).find("set NCCL_MULTI_RANK_GPU_ENABLE=1"), std::string::npos);
  const std::vector<NcclPeer> half{{23003, true, "a"}, {23003, false, "a"}};
  EXPECT_NE(nccl_refusal(half).find("for all of them"), std::string::npos);
  const std::vector<NcclPeer> asked{{23003, true, "a"}, {23003, true, "a"}, {23003, false, "b"}};
  EXPECT_EQ(nccl_refusal(asked), "");
  const std::vector<NcclPeer> old{{23002, true, "a"}, {23002, true, "a"}};
  EXPECT_NE(nccl_refusal(old).find("refuses"), std::string::npos);
}

TEST(NcclStart, TwoSlicesOfOneGpuAreOneGpuAndGpusOfTwoNodesAreNot) {
  const std::vector<NcclPeer> slices{{22809, false, "GPU-a@0000:41:00.0/boot1"},
                                     {22809, false, "GPU-b@0000:41:00.0/boot1"}};
  EXPECT_NE(nccl_refusal(slices).find("ranks 0 and 1 use one GPU (0000:41:00.0), which"),
            std::string::npos)
      << nccl_refusal(slices);
  const std::vector<NcclPeer> apart{{22809, false, "GPU-a@0000:41:00.0/boot1"},
                                    {22809, false, "GPU-b@0000:41:00.0/boot2"},
                                    {22809, false, "GPU-c@0000:42:00.0/boot1"}};
  EXPECT_EQ(nccl_refusal(apart), "");
}

TEST(NcclStart, ARankThatCannotMakeTheIdStopsAll) {
  expect_all(nccl_outcomes(scripted(2, 0,
                                    [](FakeNccl::Script& script) {
                                      script.id_fails = NcclStatus::system_error;
                                    }),
                           [](NcclRank&, Communicator&) {}),
             Kind::error, "ncclGetUniqueId: rank 0: NCCL reports system error");
}

TEST(NcclStart, OneRankOfSoManyMakesAnIdWhereNcclTakesSeveral) {
  for (const bool several : {false, true}) {
    NcclCase test{5};
    test.ranks_per_id = 2;
    test.script = [=](int, FakeNccl::Script& script) { script.takes_several_ids = several; };
    run_nccl(test, [=](NcclRank& rank, Communicator& nccl) {
      EXPECT_EQ(rank.nccl->count(several ? "init with 3 ids" : "init with 1 ids"), 1);
      const at::Tensor tensor = ones();
      nccl.all_reduce(tensor).wait();
      EXPECT_TRUE(at::equal(rank.read(tensor), at::full({4}, 5.0F)));
    });
  }
}

TEST(NcclStart, ARankThatNeverInitialisesTimesOutEverywhere) {
  NcclCase test;
  test.script = [](int, FakeNccl::Script& script) { script.init_hangs = true; };
  test.timeout = std::chrono::milliseconds(200);
  const auto result = nccl_outcomes(test, [](NcclRank&, Communicator&) {});
  expect_all(result, Kind::error, "ncclCommInitRankConfig: not done after");
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.code, ExitCode::environment);
  }
}

TEST(NcclStart, AnInitThatFailsSaysWhatNcclSays) {
  NcclCase test = scripted(
      2, 1, [](FakeNccl::Script& script) { script.init_fails = NcclStatus::invalid_usage; });
  test.timeout = std::chrono::milliseconds(200);  // for the other rank
  const auto result = nccl_outcomes(test, [](NcclRank&, Communicator&) {});
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, Kind::error);
    EXPECT_EQ(rank.code, ExitCode::environment) << "a restart would meet the same machine";
    EXPECT_EQ(rank.message.find("estart"), std::string::npos) << rank.message;
  }
  EXPECT_NE(result[1].message.find("invalid usage: the fake's last words"), std::string::npos);
}

TEST(NcclStart, AnAbortedInitIsAborted) {
  NcclCase test;
  test.script = [](int, FakeNccl::Script& script) { script.init_hangs = true; };
  test.timeout = std::chrono::milliseconds(100);
  const auto world = make_fake_nccl_world();
  outcomes(2, [&](Communicator& host) {
    NcclRank rank(test, world, host);
    EXPECT_THROW(rank.start(), Error);
    EXPECT_EQ(rank.nccl->count("abort"), 1);
    EXPECT_EQ(rank.nccl->count("destroy"), 0);
  });
}

TEST(NcclStart, NcclsOwnVariableDoesNotTakeTheDeadlinesAway) {
  for (const char* value : {"1", "0x1", "0", "2", ""}) {
    setenv("NCCL_COMM_BLOCKING", value, 1);
    const auto result = nccl_outcomes({2}, [](NcclRank&, Communicator&) {});
    unsetenv("NCCL_COMM_BLOCKING");
    if (std::strtol(value, nullptr, 0) == 1) {
      expect_all(result, Kind::error, "ranks 0-1 have NCCL_COMM_BLOCKING=1 in its environment");
    } else {
      expect_all(result, Kind::returned, "");
    }
  }
  EXPECT_THROW(require_non_blocking({{22809, false, "a"}, {22809, false, "b", true}}), Error);
}

TEST(NcclErrors, AnAsynchronousErrorEndsTheCommunicator) {
  const auto result = nccl_outcomes(scripted(2, 1,
                                             [](FakeNccl::Script& script) {
                                               script.error_after = {{2, NcclStatus::remote_error}};
                                               script.hangs_at = {2};
                                             }),
                                    [](NcclRank& rank, Communicator& nccl) {
                                      nccl.all_reduce(ones()).wait();
                                      nccl.all_reduce(ones()).wait();
                                      if (rank.rank() == 0) {
                                        throw std::runtime_error("its part hangs for ever");
                                      }
                                      go_on_until_it_throws(nccl);
                                    });
  EXPECT_EQ(result[1].kind, Kind::communication_error);
  EXPECT_NE(result[1].message.find("NCCL reports remote error: the fake's last words"),
            std::string::npos);
  EXPECT_NE(result[1].message.find("all_reduce #2"), std::string::npos) << result[1].message;
}

TEST(NcclErrors, AFailedCallSaysWhatNcclSays) {
  NcclCase test;
  test.script = [](int, FakeNccl::Script& script) {
    script.collective_fails = NcclStatus::invalid_argument;
  };
  expect_all(nccl_outcomes(test,
                           [](NcclRank& rank, Communicator& nccl) {
                             EXPECT_THROW(nccl.all_reduce(ones()), CommunicationError);
                             EXPECT_EQ(rank.nccl->count("abort"), 1);
                             nccl.progress();
                           }),
             Kind::communication_error,
             "ncclAllReduce: NCCL reports invalid argument: the fake's last words");
}

TEST(NcclErrors, AFailedSplitAborts) {
  NcclCase test;
  test.script = [](int, FakeNccl::Script& script) {
    script.split_fails = NcclStatus::internal_error;
  };
  expect_all(nccl_outcomes(test, [](NcclRank&, Communicator& nccl) { nccl.split(0); }),
             Kind::communication_error, "ncclCommSplit: NCCL reports internal error");
}

/// An abort of a part ends what it was split from, too.
TEST(NcclErrors, AnExceptionOfTheProgramEndsAPartWithoutAnAbort) {
  nccl_outcomes(NcclCase{2}, [](NcclRank& rank, Communicator& nccl) {
    try {
      const Communicator part = nccl.split(0);
      part.all_reduce(ones()).wait();
      rank.current.finish();
      throw std::runtime_error("of the program");
    } catch (const std::runtime_error&) {
      EXPECT_EQ(rank.nccl->count("abort"), 0);
      EXPECT_EQ(rank.nccl->count("finalize"), 1);
    }
    nccl.all_reduce(ones()).wait();
    rank.current.finish();
  });
}

TEST(NcclErrors, AnExceptionOfTheProgramAbortsWhatIsInFlight) {
  NcclCase test = scripted(2, 1, [](FakeNccl::Script& script) { script.hangs_at = {1}; });
  nccl_outcomes(test, [](NcclRank& rank, Communicator& nccl) {
    try {
      const Communicator part = nccl.split(0);
      part.all_reduce(ones()).wait();
      throw std::runtime_error("of the program");
    } catch (const std::runtime_error&) {
      EXPECT_EQ(rank.nccl->count("abort"), 1);
    }
  });
}

TEST(NcclErrors, AFailureAfterTheLastCallIsPrinted) {
  NcclCase test = scripted(2, 1, [](FakeNccl::Script& script) {
    script.error_after = {{1, NcclStatus::remote_error}};
    script.hangs_at = {1};
  });
  std::atomic<bool> is_thrown{false};  // the watchdog was early: the call itself has told it
  ::testing::internal::CaptureStderr();
  nccl_outcomes(test, [&](NcclRank& rank, Communicator& nccl) {
    try {
      nccl.all_reduce(ones()).wait();
    } catch (const CommunicationError&) {
      is_thrown = is_thrown || rank.rank() == 1;
    }
    if (rank.rank() == 0) {
      throw std::runtime_error("its part hangs for ever");
    }
    while (rank.nccl->count("abort") == 0) {
      std::this_thread::yield();
    }
  });
  const std::string printed = ::testing::internal::GetCapturedStderr();
  if (!is_thrown) {
    EXPECT_THAT(printed, ::testing::HasSubstr("lockstep: rank 1 of 2: NCCL reports remote error"));
  }
}

TEST(NcclHangs, ACollectiveThatHangsTimesOutAndIsNamed) {
  NcclCase test = scripted(2, 1, [](FakeNccl::Script& script) { script.hangs_at = {2}; });
  test.timeout = std::chrono::milliseconds(200);
  expect_all(nccl_outcomes(test,
                           [](NcclRank&, Communicator& nccl) {
                             nccl.all_reduce(ones()).wait();
                             nccl.all_reduce(ones(8)).wait();
                             go_on_until_it_throws(nccl);
                           }),
             Kind::communication_error, "all_reduce #2 of Float[8], sum timed out");
}

TEST(NcclHangs, TheAbortFreesAHostThatWaitsForTheDevice) {
  NcclCase test = scripted(2, 1, [](FakeNccl::Script& script) { script.hangs_at = {1}; });
  test.timeout = std::chrono::milliseconds(200);
  expect_all(nccl_outcomes(test,
                           [](NcclRank& rank, Communicator& nccl) {
                             nccl.all_reduce(ones()).wait();
                             rank.current.finish();  // blocked until somebody aborts
                             EXPECT_EQ(rank.nccl->count("abort"), 1);
                             nccl.progress();
                           }),
             Kind::communication_error, "timed out");
}

/// Two ranks whose first collective hangs on the last one.
NcclCase hanging() {
  NcclCase test = scripted(2, 1, [](FakeNccl::Script& script) { script.hangs_at = {1}; });
  test.timeout = std::chrono::milliseconds(200);
  return test;
}

void await_failure(const NcclRank& rank) {
  while (rank.failures->load() == 0) {
    std::this_thread::yield();
  }
}

TEST(NcclHangs, ADriverThatAnswersNobodyHoldsUpNoDeadline) {
  expect_all(nccl_outcomes(hanging(),
                           [](NcclRank& rank, Communicator& nccl) {
                             *rank.lane->busy = true;
                             nccl.all_reduce(ones());
                             await_failure(rank);
                             *rank.lane->busy = false;
                             nccl.progress();
                           }),
             Kind::communication_error, "all_reduce #1 of Float[4], sum timed out");
}

TEST(NcclHangs, ARankWhoseOwnQuestionIsNotAnsweredIsLateAllTheSame) {
  expect_all(nccl_outcomes(hanging(),
                           [](NcclRank& rank, Communicator& nccl) {
                             nccl.all_reduce(ones());
                             *rank.lane->busy = true;
                             std::thread driver([&] {
                               await_failure(rank);
                               *rank.lane->busy = false;
                             });
                             const auto end = c10::make_scope_exit([&] { driver.join(); });
                             go_on_until_it_throws(nccl);
                           }),
             Kind::communication_error, "timed out");
}

TEST(NcclHangs, AThreadThatDoesNotComeBackFromNcclHoldsUpNoDeadline) {
  NcclCase test = hanging();
  test.abort_deadline = std::chrono::milliseconds(50);
  const auto inside = std::make_shared<std::atomic<bool>>(false);
  const auto go = std::make_shared<std::atomic<bool>>(false);
  test.script = [=, hang = test.script](int rank, FakeNccl::Script& script) {
    hang(rank, script);
    script.inside = [=, calls = std::make_shared<int>(0)](const std::string& call) {
      while (call == "a collective" && rank == 0 && ++*calls > 1 && !go->load()) {
        inside->store(true);
        std::this_thread::yield();
      }
    };
  };
  const auto result = nccl_outcomes(test, [&](NcclRank& rank, Communicator& nccl) {
    std::thread driver([&] {
      await_failure(rank);
      *go = true;
    });
    const auto end = c10::make_scope_exit([&] { driver.join(); });
    nccl.all_reduce(ones());
    nccl.all_reduce(ones());
    go_on_until_it_throws(nccl);
  });
  EXPECT_TRUE(inside->load());
  EXPECT_EQ(result[0].kind, Kind::communication_error) << result[0].message;
}

/// The signs that this process gives to a launcher.
class Signs {
 public:
  Signs() {
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends_);
    struct stat info = {};
    fstat(ends_[1], &info);
    setenv("LOCKSTEP_LIFE_SIGNS", c10::str(ends_[1], ":", info.st_ino).c_str(), 1);
  }
  ~Signs() {
    unsetenv("LOCKSTEP_LIFE_SIGNS");
    close(ends_[0]);
    close(ends_[1]);
  }
  Signs(const Signs&) = delete;
  Signs& operator=(const Signs&) = delete;
  std::string read() const {
    char bytes[4096];
    const ssize_t size = recv(ends_[0], bytes, sizeof bytes, MSG_DONTWAIT);
    return {bytes, static_cast<size_t>(std::max<ssize_t>(0, size))};
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST(NcclHangs, ADeviceThatStillDoesNotAnswerAfterTheAbortIsAReasonToEndTheProcess) {
  const Signs signs;
  NcclCase test = hanging();
  test.ranks = 1;
  test.script = [](int, FakeNccl::Script& script) { script.hangs_at = {1}; };
  test.abort_deadline = std::chrono::milliseconds(50);
  std::string seen;
  nccl_outcomes(test, [&](NcclRank& rank, Communicator& nccl) {
    *rank.lane->busy = true;
    nccl.all_reduce(ones());
    while (seen.find("\nk20o") == std::string::npos) {
      seen += signs.read();
      std::this_thread::yield();
    }
    *rank.lane->busy = false;
  });
  EXPECT_NE(seen.find("k20o a call to the device has not returned"), std::string::npos) << seen;
}

TEST(NcclHangs, ALateCollectiveIsNoErrorBeforeTheDeadline) {
  std::atomic<bool> go{false};
  run_nccl({2}, [&](NcclRank& rank, Communicator& nccl) {
    rank.current.put([&] { return go.load(); });
    const at::Tensor tensor = ones();
    nccl.all_reduce(tensor).wait();
    for (int i = 0; i < 1000; ++i) {
      nccl.progress();
    }
    nccl.barrier().wait();
    go = true;
    EXPECT_TRUE(at::equal(rank.read(tensor), at::full({4}, 2.0F)));
    EXPECT_EQ(rank.failures->load(), 0);
  });
}

TEST(NcclHangs, AnAbortThatHangsIsLeftBehindAfterItsDeadline) {
  NcclCase test;
  test.script = [](int, FakeNccl::Script& script) {
    script.abort_hangs = true;
    script.collective_fails = NcclStatus::system_error;
  };
  test.abort_deadline = std::chrono::milliseconds(50);
  const Signs signs;
  expect_all(nccl_outcomes(test,
                           [](NcclRank& rank, Communicator& nccl) {
                             try {
                               nccl.all_reduce(ones());
                             } catch (...) {
                               rank.nccl->release_abort();
                               throw;
                             }
                           }),
             Kind::communication_error, "ncclCommAbort has not returned");
  EXPECT_NE(signs.read().find("k20o ncclCommAbort has not returned"), std::string::npos);
}

TEST(NcclDevice, TheWatchdogOutlivesADeviceThatFails) {
  nccl_outcomes({2}, [](NcclRank& rank, Communicator& nccl) {
    rank.current.put([lost = rank.lane->lost] { return lost->load(); });
    nccl.all_reduce(ones()).wait();
    *rank.lane->lost = true;
    while (rank.failures->load() == 0) {
      std::this_thread::yield();
    }
    try {
      nccl.progress();
      ADD_FAILURE() << "a call went through";
    } catch (const CommunicationError& error) {
      EXPECT_NE(std::string(error.what()).find("the device failed: unspecified launch failure"),
                std::string::npos)
          << error.what();
    }
  });
}

TEST(NcclDevice, MemoryOfADeviceThatFailedIsGivenBack) {
  nccl_outcomes({2}, [](NcclRank& rank, Communicator& nccl) {
    at::Tensor bucket = nccl.allocate(4, at::kFloat);
    *rank.lane->lost = true;
    bucket = at::Tensor();
    EXPECT_EQ(rank.nccl->count("deregister"), 1);
    EXPECT_EQ(rank.nccl->blocks(), 0);
  });
}

TEST(NcclPeers, ALostPeerEndsTheOthers) {
  const auto result = nccl_outcomes({3}, [](NcclRank& rank, Communicator& nccl) {
    nccl.all_reduce(ones()).wait();
    if (rank.rank() == 1) {
      throw std::runtime_error("rank 1 dies");
    }
    nccl.all_reduce(ones()).wait();
  });
  EXPECT_EQ(result[1].kind, Kind::other);
  for (const size_t k : {0, 2}) {
    EXPECT_EQ(result[k].kind, Kind::communication_error) << result[k].message;
    EXPECT_NE(result[k].message.find("rank 1 has died or left"), std::string::npos);
  }
}

TEST(NcclAfterwards, EveryCallThrowsTheFirstFailureAndAbortsOnce) {
  NcclCase test;
  test.script = [](int, FakeNccl::Script& script) {
    script.collective_fails = NcclStatus::cuda_error;
  };
  nccl_outcomes(test, [](NcclRank& rank, Communicator& nccl) {
    std::vector<std::string> messages;
    const at::Tensor tensor = ones(), pair = ones(8);
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { nccl.all_reduce(tensor); }, [&] { nccl.reduce_scatter(tensor, pair); },
             [&] { nccl.all_gather(pair, tensor); }, [&] { nccl.broadcast(tensor); },
             [&] { nccl.barrier(); }, [&] { nccl.split(0); }, [&] { nccl.allocate(4, at::kFloat); },
             [&] { nccl.progress(); }}) {
      try {
        call();
        ADD_FAILURE() << "a call went through";
      } catch (const CommunicationError& error) {
        messages.push_back(error.what());
      }
    }
    ASSERT_EQ(messages.size(), 8U);
    EXPECT_EQ(std::count(messages.begin(), messages.end(), messages[0]), 8);
    EXPECT_EQ(rank.nccl->count("abort"), 1);
    EXPECT_EQ(rank.failures->load(), 1);
  });
}

TEST(NcclAfterwards, MemoryOfAnAbortedCommunicatorIsReleasedNotDeregistered) {
  NcclCase test;
  test.script = [](int, FakeNccl::Script& script) {
    script.collective_fails = NcclStatus::cuda_error;
  };
  nccl_outcomes(test, [](NcclRank& rank, Communicator& nccl) {
    at::Tensor bucket = nccl.allocate(4, at::kFloat);
    EXPECT_THROW(nccl.all_reduce(bucket), CommunicationError);
    bucket = at::Tensor();
    EXPECT_EQ(rank.nccl->count("deregister"), 0);
    EXPECT_EQ(rank.nccl->blocks(), 0);
  });
}

TEST(NcclLibrary, TwoCopiesInOneProcessAreRefused) {
  const std::vector<std::string> loaded{"/usr/lib/libc.so.6", "/a/libnccl.so.2", "",
                                        "/a/libnccl.so.2", "/a/libnccl-net.so"};
  EXPECT_EQ(nccl_file(loaded), "/a/libnccl.so.2");
  EXPECT_EQ(nccl_file({"/usr/lib/libc.so.6", "/a/libnccl-net.so", "/a/libtorch_cuda.so"}), "");
  try {
    nccl_file({"/a/libnccl.so.2", "/b/libnccl.so.2.28.9"});
    ADD_FAILURE() << "two copies were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::environment);
    EXPECT_NE(std::string(error.what()).find("/b/libnccl.so.2.28.9"), std::string::npos);
  }
}

TEST(NcclLibrary, IsTheOneThatLibtorchHasLoaded) {
  if (!nccl_available()) {
    EXPECT_THROW(load_nccl(), Error);
    return;
  }
  const std::vector<std::string> before = loaded_libraries();
  EXPECT_GE(load_nccl()->version(), NcclApi::kOldest);
  EXPECT_EQ(loaded_libraries(), before) << "loading NCCL must not load a second one";
}

TEST(NcclLibrary, IsFoundInsideLibtorchCuda) {
  const std::string path = NCCL_INSIDE;  // a libtorch_cuda.so that has NCCL, as in zips up to 2.11
  ASSERT_NE(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  EXPECT_EQ(nccl_file({"/usr/lib/libc.so.6", path}), path);
  EXPECT_THAT(nccl_files({"/a/libnccl.so.2", path}), ElementsAre("/a/libnccl.so.2", path));
  EXPECT_THAT(
      [&] {
        nccl_file({"/a/libnccl.so.2", path});
      },
      ::testing::ThrowsMessage<Error>(HasSubstr(path)));
}

TEST(NcclLibrary, WritesVersionsAsNcclDoes) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(NcclApi::kSharesGpu), "2.30.3");
}

}  // namespace
}  // namespace lockstep
