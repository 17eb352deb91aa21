#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/collective_log.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <regex>

#include "test_names.h"
#include "thread_ranks.h"
#include "verbs.h"

namespace lockstep {

using namespace detail;

namespace {

using Kind = RankOutcome::Kind;

void expect_all(const std::vector<RankOutcome>& ranks, Kind kind,
                const std::vector<std::string>& words) {
  for (size_t k = 0; k < ranks.size(); ++k) {
    EXPECT_EQ(ranks[k].kind, kind) << "rank " << k << ": " << ranks[k].message;
    for (const std::string& word : words) {
      EXPECT_NE(ranks[k].message.find(word), std::string::npos)
          << "rank " << k << " does not say '" << word << "': " << ranks[k].message;
    }
  }
}

CommunicatorOptions timeout(std::chrono::milliseconds time) {
  CommunicatorOptions options;
  options.timeout = time;
  return options;
}

const CommunicatorOptions kPatient = timeout(std::chrono::seconds(60));

class Mismatch : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Mismatch, ::testing::Values(2, 3, 5),
                         [](const auto& info) { return "np" + std::to_string(info.param); });

TEST_P(Mismatch, OfDtypeIsReportedOnEveryRank) {
  const auto result = outcomes(
      GetParam(),
      [](Communicator& ranks) {
        ranks.all_reduce(at::zeros({10000}, ranks.rank() == 1 ? at::kHalf : at::kFloat)).wait();
      },
      kPatient);
  expect_all(result, Kind::error,
             {"all_reduce #1 of Half[10000]", "all_reduce #1 of Float[10000]",
              "rank 1: all_reduce #1 of Half"});
}

TEST_P(Mismatch, OfSizeIsReportedOnEveryRank) {
  for (int64_t numel : {100, 1000000}) {
    const auto result = outcomes(
        GetParam(),
        [&](Communicator& ranks) {
          ranks.all_reduce(at::zeros({numel + (ranks.rank() == 0 ? 1 : 0)})).wait();
        },
        kPatient);
    expect_all(
        result, Kind::error,
        {"Float[" + std::to_string(numel) + "]", "Float[" + std::to_string(numel + 1) + "]"});
  }
}

TEST_P(Mismatch, OfOperationIsReportedOnEveryRank) {
  const auto result = outcomes(
      GetParam(),
      [](Communicator& ranks) {
        ranks.barrier().wait();
        ranks.all_reduce(at::zeros({5}), ranks.rank() == 1 ? ReduceOp::max() : ReduceOp::sum())
            .wait();
      },
      kPatient);
  expect_all(result, Kind::error, {"all_reduce #2", ", max", ", sum"});
}

TEST_P(Mismatch, OfPredivideIsReportedOnEveryRank) {
  const auto result = outcomes(
      GetParam(),
      [](Communicator& ranks) {
        ranks.all_reduce(at::zeros({5}), ReduceOp::avg().predivide(ranks.rank() == 0 ? 2.0 : 1.0))
            .wait();
      },
      kPatient);
  expect_all(result, Kind::error, {"predivide 2"});
}

TEST_P(Mismatch, OfRootIsReportedOnEveryRank) {
  const auto result = outcomes(
      GetParam(),
      [](Communicator& ranks) {
        ranks.broadcast(at::zeros({5}), ranks.rank() == 0 ? 0 : 1).wait();
      },
      kPatient);
  expect_all(result, Kind::error, {"root 0", "root 1"});
}

TEST_P(Mismatch, OfOrderIsReportedOnEveryRank) {
  const auto result = outcomes(
      GetParam(),
      [](Communicator& ranks) {
        const at::Tensor first = at::zeros({5}), second = at::zeros({600000});
        std::vector<Work> works;
        works.push_back(ranks.all_reduce(ranks.rank() == 0 ? first : second));
        works.push_back(ranks.all_reduce(ranks.rank() == 0 ? second : first));
        for (Work& work : works) {
          work.wait();
        }
      },
      kPatient);
  expect_all(result, Kind::error, {"#1 of Float[5]", "#1 of Float[600000]"});
}

TEST_P(Mismatch, OfVerbIsReportedOnEveryRank) {
  const auto result = outcomes(
      GetParam(),
      [](Communicator& ranks) {
        if (ranks.rank() == 0) {
          static_cast<void>(ranks.split(0));
        } else {
          ranks.barrier().wait();
        }
      },
      kPatient);
  expect_all(result, Kind::error, {"split #1", "barrier #1"});
}

TEST_P(Mismatch, OfAllocationIsReportedOnEveryRank) {
  const auto result = outcomes(
      GetParam(),
      [](Communicator& ranks) {
        static_cast<void>(ranks.allocate(10 + ranks.rank() % 2, at::kFloat));
      },
      kPatient);
  expect_all(result, Kind::error, {"allocate #1 of Float[10]", "allocate #1 of Float[11]"});
}

TEST_P(Mismatch, OfWindowOffsetsIsReportedOnEveryRank) {
  const auto result = outcomes(
      GetParam(),
      [](Communicator& ranks) {
        const at::Tensor window = ranks.allocate(100000, at::kFloat);
        ranks.all_reduce(window.narrow(0, ranks.rank() == 0 ? 0 : 16, 90000)).wait();
      },
      kPatient);
  expect_all(result, Kind::error,
             {"at byte 0 of shared buffer 0", "at byte 64 of shared buffer 0"});
}

TEST_P(Mismatch, PoisonsTheCommunicator) {
  const auto result = outcomes(
      GetParam(),
      [](Communicator& ranks) {
        EXPECT_THROW(ranks.all_reduce(at::zeros({ranks.rank() + 1})).wait(), Error);
        EXPECT_THROW(ranks.barrier(), Error);
        EXPECT_NE(ranks.collective_log().find("failed"), std::string::npos);
        ranks.progress();
      },
      kPatient);
  expect_all(result, Kind::error, {"do not make the same call #1"});
}

TEST(PeerTrouble, TimeoutNamesTheLateRankTheCallAndTheLog) {
  std::atomic<int> over{0};
  const auto result = outcomes(
      3,
      [&](Communicator& ranks) {
        ranks.broadcast(at::zeros({7})).wait();
        if (ranks.rank() == 1) {
          while (over < 2) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          throw std::runtime_error("rank 1 never came");
        }
        try {
          ranks.all_reduce(at::zeros({42})).wait();
        } catch (...) {
          ++over;
          throw;
        }
      },
      timeout(std::chrono::milliseconds(300)));
  for (size_t k : {0, 2}) {
    EXPECT_EQ(result[k].kind, Kind::communication_error) << result[k].message;
    for (const char* words :
         {"all_reduce #2 of Float[42]", "rank 1 did not arrive", "timed out after",
          "its last call was #1", "broadcast #1 of Float[7]", "complete"}) {
      EXPECT_NE(result[k].message.find(words), std::string::npos) << words << "\n"
                                                                  << result[k].message;
    }
  }
}

TEST(PeerTrouble, ARankThatLeavesIsNoticedLongBeforeTheTimeout) {
  const auto start = std::chrono::steady_clock::now();
  const auto result = outcomes(
      3,
      [](Communicator& ranks) {
        ranks.barrier().wait();
        if (ranks.rank() == 2) {
          throw std::runtime_error("out of luck");
        }
        ranks.all_reduce(at::zeros({100000})).wait();
      },
      timeout(std::chrono::minutes(10)));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(result[2].message, "out of luck");
  EXPECT_EQ(result[0].kind, Kind::communication_error);
  EXPECT_EQ(result[1].kind, Kind::communication_error);
  const std::string both = result[0].message + result[1].message;
  EXPECT_NE(both.find("rank 2 has died or left"), std::string::npos) << both;
}

TEST(PeerTrouble, ARankMayLeaveOnceItsOwnPartIsDone) {
  const auto result = outcomes(4, [](Communicator& ranks) {
    const at::Tensor tensor = at::ones({500000});
    Work work = ranks.all_reduce(tensor);
    if (ranks.rank() != 0) {
      return;  // destroying the communicator completes what was issued
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    work.wait();
    EXPECT_EQ(tensor[499999].item<float>(), 4.f);
  });
  expect_all(result, Kind::returned, {});
}

TEST(PeerTrouble, WorkThatOutlivesItsCommunicatorSaysSo) {
  std::vector<Communicator> ranks = Communicator::threads(2);
  Work work = ranks[0].all_reduce(at::zeros({10}));
  ranks[1] = Communicator::solo();  // leaves without a call
  ranks[0] = Communicator::solo();  // cannot complete any more
  EXPECT_THROW(work.wait(), CommunicationError);
}

class Arguments : public ::testing::TestWithParam<int> {
 protected:
  void expect_error(const std::function<void(Communicator&)>& body,
                    const std::vector<std::string>& words) {
    const auto result = outcomes(GetParam(), body);
    expect_all(result, Kind::error, words);
    for (size_t k = 0; k < result.size(); ++k) {
      EXPECT_EQ(result[k].message.find("rank " + std::to_string(k) + " of " +
                                       std::to_string(GetParam()) + ": "),
                0u);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Arguments, ::testing::Values(1, 2),
                         [](const auto& info) { return "np" + std::to_string(info.param); });

TEST_P(Arguments, AverageOfIntegersIsRefused) {
  expect_error(
      [](Communicator& r) {
        static_cast<void>(r.all_reduce(at::zeros({3}, at::kInt), ReduceOp::avg()));
      },
      {"all_reduce #1", "Int"});
}

TEST_P(Arguments, SumOfBoolIsRefused) {
  expect_error([](Communicator& r) { static_cast<void>(r.all_reduce(at::zeros({3}, at::kBool))); },
               {"bool", "max"});
}

TEST_P(Arguments, ComplexReductionsAreRefused) {
  expect_error(
      [](Communicator& r) { static_cast<void>(r.all_reduce(at::zeros({3}, at::kComplexFloat))); },
      {"ComplexFloat"});
}

TEST_P(Arguments, PredivideMustBePositiveAndFinite) {
  for (double factor : {0.0, -1.0, double{INFINITY}, double{NAN}}) {
    expect_error(
        [&](Communicator& r) {
          static_cast<void>(r.all_reduce(at::zeros({3}), ReduceOp::avg().predivide(factor)));
        },
        {"predivide"});
  }
  expect_error(
      [](Communicator& r) {
        static_cast<void>(r.all_reduce(at::zeros({3}), ReduceOp::sum().predivide(2)));
      },
      {"predivide(2)", "avg"});
}

TEST_P(Arguments, SizesMustFit) {
  expect_error(
      [](Communicator& r) { static_cast<void>(r.all_gather(at::zeros({7}), at::zeros({3}))); },
      {"all_gather #1", "7 elements"});
  expect_error(
      [](Communicator& r) { static_cast<void>(r.reduce_scatter(at::zeros({3}), at::zeros({8}))); },
      {"reduce_scatter #1", "8 elements"});
}

TEST_P(Arguments, DtypesMustBeEqual) {
  expect_error(
      [](Communicator& r) {
        static_cast<void>(r.all_gather(at::zeros({3 * r.size()}), at::zeros({3}, at::kInt)));
      },
      {"Float", "Int"});
}

TEST_P(Arguments, TensorsMustBeContiguousAndDefined) {
  expect_error(
      [](Communicator& r) {
        static_cast<void>(r.all_reduce(at::zeros({4, 6}).t()));
      },
      {"contiguous"});
  expect_error([](Communicator& r) { static_cast<void>(r.broadcast(at::Tensor())); },
               {"broadcast #1", "undefined"});
  expect_error([](Communicator& r) { static_cast<void>(r.all_reduce(at::eye(3).to_sparse())); },
               {"dense"});
}

TEST_P(Arguments, RootMustBeARank) {
  expect_error([](Communicator& r) { static_cast<void>(r.broadcast(at::zeros({3}), r.size())); },
               {"root"});
  expect_error([](Communicator& r) { static_cast<void>(r.broadcast(at::zeros({3}), -1)); },
               {"root is -1"});
}

TEST_P(Arguments, ARefusedCallTakesNoSequenceNumber) {
  const auto result = outcomes(GetParam(), [](Communicator& ranks) {
    if (ranks.rank() == 0) {
      EXPECT_THROW(ranks.broadcast(at::zeros({3}), 99), Error);
    }
    ranks.barrier().wait();
    EXPECT_NE(ranks.collective_log().find("barrier #1: complete"), std::string::npos)
        << ranks.collective_log();
  });
  expect_all(result, Kind::returned, {});
}

TEST(CollectiveLog, KeepsTheLastSixtyFour) {
  CollectiveLog log;
  for (int i = 0; i < 100; ++i) {
    CollectiveCall call{Verb::all_reduce, at::kHalf};
    call.numel = i;
    log.issue(call);
    EXPECT_EQ(call.sequence, static_cast<uint64_t>(i) + 1);
  }
  log.set_state(100, CollectiveLog::State::complete);
  log.set_state(1, CollectiveLog::State::failed);  // long gone
  const std::string text = log.render();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 64);
  EXPECT_EQ(text.find("#36 "), std::string::npos);
  EXPECT_NE(text.find("#37 of Half[36], sum: issued"), std::string::npos) << text;
  EXPECT_NE(text.find("#100 of Half[99], sum: complete"), std::string::npos);
  EXPECT_EQ(text.find("failed"), std::string::npos);
  const std::regex age("[0-9.]+ s ago");  // time passes between two calls
  EXPECT_EQ(std::regex_replace(log.render(2), age, ""),
            std::regex_replace(text.substr(text.find("  all_reduce #99")), age, ""));
}

}  // namespace
}  // namespace lockstep
