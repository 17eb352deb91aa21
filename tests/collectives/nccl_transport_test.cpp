// What an NCCL transport does while all is well: results, order on the device, memory, groups.
#include "nccl_ranks.h"
#include "test_names.h"
#include "verbs.h"

#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/nccl/averaging.h>

namespace lockstep {

using namespace detail;

namespace {

at::Tensor full(int64_t numel, double value, at::ScalarType dtype = at::kFloat) {
  return at::full({numel}, value, dtype);
}

TEST(NcclTransport, KnowsItsPlaceAndName) {
  run_nccl({3}, [](NcclRank& rank, Communicator& nccl) {
    EXPECT_EQ(nccl.transport_name(), "nccl");
    EXPECT_EQ(nccl.rank(), rank.rank());
    EXPECT_EQ(nccl.size(), 3);
  });
}

TEST(NcclTransport, OneRankHasACommunicatorOfItsOwn) {
  run_nccl({1}, [](NcclRank& rank, Communicator& nccl) {
    EXPECT_EQ(nccl.transport_name(), "nccl");
    const at::Tensor bucket = nccl.allocate(4, at::kFloat);
    const at::Tensor sum = on_fake_device(full(4, 3.0));
    nccl.all_reduce(sum, ReduceOp::avg()).wait();
    nccl.broadcast(sum).wait();
    nccl.all_gather(bucket, sum).wait();
    nccl.reduce_scatter(sum, bucket).wait();
    nccl.barrier().wait();
    EXPECT_TRUE(at::equal(rank.read(sum), full(4, 3.0)));
    for (const char* call : {"init", "allocate", "register", "all_reduce Float[4]", "broadcast",
                             "all_gather", "reduce_scatter Float[4]"}) {
      EXPECT_EQ(rank.nccl->count(call), 1) << call;
    }
    EXPECT_EQ(nccl.split(0).size(), 1);
  });
}

TEST(NcclTransport, AllReduceSumsEveryDtype) {
  run_nccl({3}, [](NcclRank& rank, Communicator& nccl) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar,
                                       at::kByte, at::kInt, at::kLong}) {
      const at::Tensor tensor = on_fake_device(input_of(rank.rank(), 40, dtype));
      nccl.all_reduce(tensor).wait();
      EXPECT_TRUE(same_bits(rank.read(tensor), expected_reduction(3, 40, dtype, ReduceOp::sum())))
          << dtype;
    }
  });
}

TEST(NcclTransport, AllReduceFindsTheMaximumOrTheMinimum) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    for (const ReduceOp op : {ReduceOp::max(), ReduceOp::min()}) {
      const at::Tensor tensor = on_fake_device(full(4, rank.rank() == 0 ? 7 : -7));
      nccl.all_reduce(tensor, op).wait();
      EXPECT_TRUE(at::equal(rank.read(tensor), full(4, op == ReduceOp::max() ? 7 : -7)));
    }
  });
}

TEST(NcclTransport, MaximumOfBoolIsAnyRank) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor flags = on_fake_device(full(2, rank.rank(), at::kBool));
    nccl.all_reduce(flags, ReduceOp::max()).wait();
    EXPECT_TRUE(rank.read(flags).all().item<bool>());
    EXPECT_EQ(rank.nccl->count("all_reduce Bool"), 1);
  });
}

TEST(NcclTransport, RefusesToReduceInt16ByName) {
  const auto result = nccl_outcomes({2}, [](NcclRank&, Communicator& nccl) {
    nccl.all_reduce(on_fake_device(full(2, 1, at::kShort)));
  });
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, RankOutcome::Kind::error);
    EXPECT_NE(rank.message.find("NCCL cannot reduce Short"), std::string::npos) << rank.message;
  }
}

TEST(NcclTransport, AverageOfTwoRanksIsOnePremultipliedSum) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor tensor = on_fake_device(full(4, rank.rank() == 0 ? 1 : 4));
    nccl.all_reduce(tensor, ReduceOp::avg()).wait();
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 2.5)));
    EXPECT_EQ(rank.nccl->count("premultiplied_sum Float 0.5"), 1);
    EXPECT_TRUE(rank.lane->scales.empty());
  });
}

TEST(NcclTransport, AverageOfThreeRanksMultipliesByAPowerOfTwoBeforeAndTheRestAfter) {
  run_nccl({3}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor tensor = on_fake_device(full(4, rank.rank() * 3));
    nccl.all_reduce(tensor, ReduceOp::avg()).wait();
    EXPECT_TRUE(at::allclose(rank.read(tensor), full(4, 3)));
    EXPECT_EQ(rank.nccl->count("premultiplied_sum Float 0.25"), 1);
    EXPECT_EQ(rank.lane->scales, std::vector<double>{4.0 / 3.0});
  });
}

TEST(NcclTransport, AverageOfLargeHalvesDoesNotOverflow) {
  for (const int ranks : {2, 3, 4}) {
    run_nccl({ranks}, [](NcclRank& rank, Communicator& nccl) {
      const at::Tensor tensor = on_fake_device(full(4, 60000, at::kHalf));
      nccl.all_reduce(tensor, ReduceOp::avg()).wait();
      EXPECT_TRUE(at::allclose(rank.read(tensor).to(at::kFloat), full(4, 60000), 1e-3));
    });
  }
}

TEST(NcclTransport, PredivideIsTheCallersChoice) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor tensor = on_fake_device(full(4, 12));
    nccl.all_reduce(tensor, ReduceOp::avg().predivide(8)).wait();
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 12)));
    EXPECT_EQ(rank.nccl->count("premultiplied_sum Float 0.125"), 1);
    EXPECT_EQ(rank.lane->scales, std::vector<double>{4.0});
  });
}

TEST(NcclTransport, AveragingFactorsGiveTheAverage) {
  for (int ranks = 1; ranks < 70; ++ranks) {
    const Averaging factors = averaging(ReduceOp::avg(), ranks);
    EXPECT_DOUBLE_EQ(factors.before * ranks * factors.after, 1.0);
    EXPECT_LE(factors.before * ranks, 1.0) << "the sum leaves the range of its terms";
  }
}

TEST(NcclTransport, MakesAnOperatorOnceForEachDtype) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kFloat, at::kHalf}) {
      nccl.all_reduce(on_fake_device(full(4, 1, dtype)), ReduceOp::avg()).wait();
    }
    EXPECT_EQ(rank.nccl->count("premultiplied_sum"), 2);
    rank.current.finish();
  });
}

TEST(NcclTransport, ReduceScatterGivesEachRankItsShare) {
  run_nccl({3}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor output = on_fake_device(at::zeros({5}));
    nccl.reduce_scatter(output, on_fake_device(input_of(rank.rank(), 15, at::kFloat))).wait();
    const at::Tensor sum = expected_reduction(3, 15, at::kFloat, ReduceOp::sum());
    EXPECT_TRUE(at::equal(rank.read(output), sum.narrow(0, 5 * rank.rank(), 5)));
  });
}

TEST(NcclTransport, AllGatherAndBroadcastMoveEveryDtype) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    for (const at::ScalarType dtype : {at::kShort, at::kBool, at::kHalf, at::kDouble}) {
      const at::Tensor output = on_fake_device(at::zeros({14}, dtype));
      nccl.all_gather(output, on_fake_device(input_of(rank.rank(), 7, dtype))).wait();
      EXPECT_TRUE(
          at::equal(rank.read(output), at::cat({input_of(0, 7, dtype), input_of(1, 7, dtype)})));
      const at::Tensor tensor = on_fake_device(input_of(rank.rank(), 7, dtype));
      nccl.broadcast(tensor, 1).wait();
      EXPECT_TRUE(at::equal(rank.read(tensor), input_of(1, 7, dtype)));
    }
  });
}

TEST(NcclTransport, NoElementsNeedNoNccl) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    nccl.all_reduce(on_fake_device(at::zeros({0}))).wait();
    EXPECT_EQ(rank.nccl->count("all_reduce"), 0);
  });
}

TEST(NcclTransport, HostTensorsGoOverTheHost) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor tensor = full(4, rank.rank());
    nccl.all_reduce(tensor).wait();
    EXPECT_TRUE(at::equal(tensor, full(4, 1)));
    EXPECT_EQ(nccl.all_gather_bytes(std::to_string(rank.rank())),
              (std::vector<std::string>{"0", "1"}));
    nccl.barrier().wait();
    EXPECT_EQ(rank.nccl->count("all_reduce"), 0);
  });
}

TEST(NcclTransport, ReadsWhatTheCallersStreamWroteBefore) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor tensor = on_fake_device(at::zeros({4}));
    std::atomic<bool> go{false};
    rank.current.put([&] { return go.load(); });
    rank.current.run([&] { bytes_of_device(tensor).fill_(rank.rank() + 1); });
    Work work = nccl.all_reduce(tensor);
    for (int i = 0; i < 1000; ++i) {
      EXPECT_FALSE(work.test()) << "the collective did not wait for the caller's stream";
    }
    go = true;
    work.wait();
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 3)));
  });
}

TEST(NcclTransport, TheCallersStreamWaitsForTheResultAndTheHostDoesNot) {
  std::atomic<bool> go{false};
  run_nccl({2}, [&](NcclRank& rank, Communicator& nccl) {
    const at::Tensor tensor = on_fake_device(full(4, 1));
    rank.current.put([&] { return go.load(); });
    Work work = nccl.all_reduce(tensor);
    work.wait();  // returns although the device has not begun
    EXPECT_FALSE(work.test());
    at::Tensor seen;
    rank.current.run([&] { seen = bytes_of_device(tensor).clone(); });
    nccl.barrier().wait();
    go = true;
    rank.current.finish();
    EXPECT_TRUE(at::equal(seen, full(4, 2)));
    EXPECT_TRUE(work.test());
  });
}

TEST(NcclTransport, TellsTheAllocatorWhichTensorsTheLaneUses) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor input = on_fake_device(full(4, 1));
    const at::Tensor output = on_fake_device(full(2, 1));
    nccl.reduce_scatter(output, input).wait();
    EXPECT_EQ(rank.lane->protected_memory, storages_of({output, input}));
    rank.current.finish();
  });
}

TEST(NcclTransport, KeepsTensorsThatTheCallerDropped) {
  std::atomic<bool> go{false};
  run_nccl({2}, [&](NcclRank& rank, Communicator& nccl) {
    std::atomic<bool> dead{false};
    rank.current.put([&] { return go.load(); });
    Work work = nccl.all_reduce(on_fake_device(full(4, 1), [&] { dead = true; }));
    work.wait();
    nccl.progress();
    EXPECT_FALSE(dead.load());
    nccl.barrier().wait();
    go = true;
    rank.current.finish();
    nccl.progress();
    EXPECT_TRUE(dead.load());
  });
}

TEST(NcclTransport, WaitsForCallsInProgress) {
  NcclCase test{2};
  test.script = [](int, FakeNccl::Script& script) { script.polls = 5; };
  run_nccl(test, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor tensor = on_fake_device(full(4, 1));
    nccl.all_reduce(tensor).wait();
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 2)));
  });
}

TEST(NcclTransport, FinalizesThenDestroys) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    nccl.all_reduce(on_fake_device(full(4, 1)));
    nccl = Communicator::solo();
    const std::vector<std::string> calls = rank.nccl->calls();
    ASSERT_GE(calls.size(), 2U);
    EXPECT_EQ(calls[calls.size() - 2], "finalize");
    EXPECT_EQ(calls.back(), "destroy");
    EXPECT_EQ(rank.nccl->count("abort"), 0);
    EXPECT_EQ(rank.failures->load(), 0);
    rank.current.finish();
  });
}

TEST(NcclTransport, WithoutTheCheckTheHostComparesNothing) {
  NcclCase test{2};
  test.check = CollectiveCheck::off;
  run_nccl(test, [](NcclRank& rank, Communicator& nccl) {
    const std::string before = rank.host.collective_log();
    const at::Tensor tensor = on_fake_device(full(4, 1));
    nccl.all_reduce(tensor).wait();
    EXPECT_EQ(rank.host.collective_log().size(), before.size());
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, 2)));
  });
}

TEST(NcclTransport, LogsWhatItCarried) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    nccl.all_reduce(on_fake_device(full(4, 1)));
    nccl.broadcast(on_fake_device(full(2, 1)));
    rank.lane->drain();
    nccl.progress();
    const std::string log = nccl.collective_log();
    EXPECT_NE(log.find("all_reduce #1 of Float[4]"), std::string::npos) << log;
    EXPECT_NE(log.find("broadcast #2 of Float[2]"), std::string::npos) << log;
  });
}

TEST(NcclSplit, GivesEveryColorItsOwnRanksInKeyOrder) {
  run_nccl({4}, [](NcclRank& rank, Communicator& nccl) {
    Communicator part = nccl.split(rank.rank() % 2, /*key=*/-rank.rank());
    EXPECT_EQ(part.transport_name(), "nccl");
    EXPECT_EQ(part.size(), 2);
    EXPECT_EQ(part.rank(), rank.rank() < 2 ? 1 : 0);
    const at::Tensor tensor = on_fake_device(full(4, rank.rank()));
    part.all_reduce(tensor).wait();
    EXPECT_TRUE(at::equal(rank.read(tensor), full(4, rank.rank() % 2 == 0 ? 2 : 4)));
  });
}

TEST(NcclSplit, ANegativeColorTakesPartAndGetsNothing) {
  run_nccl({3}, [](NcclRank& rank, Communicator& nccl) {
    Communicator part = nccl.split(rank.rank() == 2 ? -1 : 0);
    EXPECT_EQ(part.valid(), rank.rank() != 2);
    EXPECT_EQ(rank.nccl->count(rank.rank() == 2 ? "split -1" : "split 0"), 1);
  });
}

TEST(NcclSplit, ARankAloneGetsASoloCommunicatorOnItsDevice) {
  run_nccl({3}, [](NcclRank& rank, Communicator& nccl) {
    Communicator part = nccl.split(rank.rank() == 2 ? 1 : 0);
    EXPECT_EQ(part.transport_name(), rank.rank() == 2 ? "solo" : "nccl");
    EXPECT_EQ(rank.nccl->count(rank.rank() == 2 ? "split -1" : "split 0"), 1);
  });
}

TEST(NcclSplit, WaitsUntilTheDeviceIsIdle) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    std::atomic<int> asked{0};
    static_cast<FakeStream*>(rank.lane->stream())->put([&] { return ++asked == 20000; });
    nccl.split(0);
    EXPECT_EQ(asked.load(), 20000);
  });
}

TEST(NcclMemory, IsZeroedRegisteredAndReduced) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor bucket = nccl.allocate(100, at::kHalf);
    EXPECT_EQ(bucket.device(), kFakeDevice);
    EXPECT_EQ(rank.nccl->count("register"), 1);
    EXPECT_TRUE(at::equal(rank.read(bucket), at::zeros({100}, at::kHalf)));
    rank.current.run([&] { bytes_of_device(bucket).fill_(1); });
    nccl.all_reduce(bucket).wait();
    EXPECT_TRUE(at::equal(rank.read(bucket), full(100, 2, at::kHalf)));
  });
}

TEST(NcclMemory, IsDeregisteredAndReleasedWithItsLastTensor) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    at::Tensor bucket = nccl.allocate(100, at::kFloat);
    at::Tensor other = bucket;
    bucket = at::Tensor();
    EXPECT_EQ(rank.nccl->blocks(), 1);
    other = at::Tensor();
    EXPECT_EQ(rank.nccl->count("deregister"), 1);
    EXPECT_EQ(rank.nccl->blocks(), 0);
  });
}

TEST(NcclMemory, OutlivesItsCommunicator) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    at::Tensor bucket = nccl.allocate(8, at::kFloat);
    nccl = Communicator::solo();
    EXPECT_EQ(rank.nccl->count("destroy"), 1);
    bytes_of_device(bucket).fill_(3);
    bucket = at::Tensor();
    EXPECT_EQ(rank.nccl->count("deregister"), 0) << "the communicator is gone";
    EXPECT_EQ(rank.nccl->blocks(), 0);
  });
}

TEST(NcclMemory, IsRegisteredOnAllRanksOrNone) {
  NcclCase test{3};
  test.script = [](int rank, FakeNccl::Script& script) { script.no_registration = rank == 1; };
  run_nccl(test, [](NcclRank& rank, Communicator& nccl) {
    const at::Tensor bucket = nccl.allocate(8, at::kFloat);
    EXPECT_EQ(rank.nccl->count("deregister"), rank.rank() == 1 ? 0 : 1);
    bytes_of_device(bucket).fill_(1);
    nccl.all_reduce(bucket).wait();
    EXPECT_TRUE(at::equal(rank.read(bucket), full(8, 3)));
  });
}

TEST(NcclMemory, MissingOnOneRankIsAnErrorOnAllAndLeaksNothing) {
  NcclCase test{3};
  test.script = [](int rank, FakeNccl::Script& script) { script.no_memory = rank == 2; };
  const auto result = nccl_outcomes(test, [](NcclRank& rank, Communicator& nccl) {
    try {
      nccl.allocate(1000, at::kFloat);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::out_of_memory);
      EXPECT_EQ(rank.nccl->blocks(), 0);
      throw;
    }
  });
  for (const RankOutcome& rank : result) {
    EXPECT_EQ(rank.kind, RankOutcome::Kind::error);
    EXPECT_NE(rank.message.find("rank 2: this rank has no 4000 bytes"), std::string::npos)
        << rank.message;
  }
}

}  // namespace
}  // namespace lockstep
