// What lockstep doctor does with all ranks, and faults on the last of them.
#include "test_runtime.h"

#include <ATen/ATen.h>
#include <doctor/collective_checks.h>
#include <doctor/library_facts.h>
#include <doctor/rank_findings.h>
#include <doctor/training_checks.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace lockstep::doctor {
namespace {

using ::testing::HasSubstr;
using testing::runtime;

bool is_last() {
  return runtime().rank() == runtime().size() - 1;
}

AllReduceResult reduced(int64_t bytes, const std::function<void(at::Tensor&)>& fault = {}) {
  return all_reduce(runtime().communicator(), runtime().control(), runtime().device(), bytes,
                    fault);
}

TEST(DoctorRanks, AnAllReduceHasEqualBitsAndTheSumOfFp64) {
  for (const int64_t bytes : {4, 16, 262144, 1'000'000}) {
    const AllReduceResult result = reduced(bytes);
    EXPECT_TRUE(result.differing.empty());
    EXPECT_LE(result.error, 1e-7);
    const Finding finding = judge_all_reduce(result);
    if (runtime().size() == 1) {
      EXPECT_EQ(finding.status, Status::skipped);
      continue;
    }
    EXPECT_EQ(finding.status, Status::ok) << finding.what;
    EXPECT_THAT(finding.what, HasSubstr(bytes < 1024 ? " us, equal bits" : " GB/s, equal bits"));
  }
}

TEST(DoctorRanks, AnAllReduceWithOtherBitsOnOneRankNamesIt) {
  if (runtime().size() == 1) {
    return;  // there is nobody to differ from
  }
  const Finding finding = judge_all_reduce(reduced(100'000, [](at::Tensor& flat) {
    if (is_last()) {
      flat.narrow(0, 7, 1).mul_(2);
    }
  }));
  EXPECT_EQ(finding.status, Status::failure);
  EXPECT_THAT(finding.what, HasSubstr(c10::str("rank ", runtime().size() - 1, " has other bits")));
  EXPECT_THAT(finding.fix, HasSubstr("LOCKSTEP_TRANSPORT=staged"));
}

TEST(DoctorRanks, AWrongSumIsFoundThoughAllRanksHaveTheSame) {
  const Finding finding = judge_all_reduce(
      reduced(100'000, [](at::Tensor& flat) { flat.narrow(0, 24'999, 1).mul_(1.01); }));
  EXPECT_EQ(finding.status, Status::failure);
  EXPECT_THAT(finding.what, HasSubstr("against fp64"));
}

TEST(DoctorRanks, TrainingEndsWithEqualWeights) {
  const Finding finding = check_equal_weights(runtime());
  EXPECT_EQ(finding.status, Status::ok) << finding.what;
}

TEST(DoctorRanks, AWeightThatDiffersOnOneRankNamesIt) {
  if (runtime().size() == 1) {
    return;  // there is nobody to differ from
  }
  TrainingFault fault;
  fault.weights = [](const std::vector<at::Tensor>& weights) {
    if (is_last()) {
      weights[0].view(-1).narrow(0, 3, 1).add_(1e-3);
    }
  };
  const Finding finding = check_equal_weights(runtime(), fault);
  EXPECT_EQ(finding.status, Status::failure);
  EXPECT_THAT(finding.what,
              HasSubstr(c10::str("rank ", runtime().size() - 1, " has other weights")));
}

TEST(DoctorRanks, APlantedInfIsSkippedEverywhereAndItsAbsenceIsFound) {
  EXPECT_EQ(check_overflow(runtime()).status, Status::ok) << check_overflow(runtime()).what;
  TrainingFault fault;
  fault.no_inf = true;
  EXPECT_EQ(check_overflow(runtime(), fault).status, Status::failure);
}

TEST(DoctorRanks, APlantedExceptionIsRaisedEverywhereAndItsAbsenceIsFound) {
  const Finding finding = check_exception(runtime());
  EXPECT_EQ(finding.status, Status::ok) << finding.what;
  TrainingFault fault;
  fault.no_exception = true;
  EXPECT_EQ(check_exception(runtime(), fault).status, Status::failure);
}

TEST(DoctorRanks, APlantedExceptionReachesRanksThatWaitAndItsAbsenceIsFound) {
  const bool waits = runtime().size() > 1 && runtime().device().is_cpu();
  const Finding finding = check_waiting_peers(runtime());
  EXPECT_EQ(finding.status, waits ? Status::ok : Status::skipped) << finding.what;
  TrainingFault fault;
  fault.no_exception = true;
  EXPECT_EQ(check_waiting_peers(runtime(), fault).status,
            waits ? Status::failure : Status::skipped);
}

TEST(DoctorRanks, CapturedStepsAndTransportsAreComparedOnlyWhereThereAreSuch) {
  const Finding captured = check_captured_steps(runtime());
  EXPECT_LE(captured.status, Status::skipped) << captured.what;
  const Finding transports = check_transports(runtime());
  EXPECT_LE(transports.status, Status::skipped) << transports.what;
}

TEST(DoctorRanks, TheWorstFindingOfTheRanksCountsAndExceptionsAreFailures) {
  const Finding mine = finding_of([]() -> Finding {
    if (is_last()) {
      throw std::runtime_error("no memory\nand a backtrace");
    }
    return {Status::ok, "fine", ""};
  });
  const Finding worst = worst_of(runtime().control(), mine);
  EXPECT_EQ(worst.status, Status::failure);
  EXPECT_EQ(worst.what, runtime().size() == 1
                            ? "no memory"
                            : c10::str("rank ", runtime().size() - 1, ": no memory"));
}

TEST(DoctorRanks, FactsOfAllRanksAreRead) {
  RankFacts facts;
  read_libraries(facts);
  read_world(facts, runtime());
  EXPECT_EQ(facts.rank, runtime().rank());
  EXPECT_EQ(facts.size, runtime().size());
  EXPECT_EQ(facts.launched, runtime().size());
  EXPECT_THAT(facts.libtorch_loaded, ::testing::StartsWith(facts.libtorch_built));
  EXPECT_EQ(facts.thread_level, "MPI_THREAD_MULTIPLE");
  EXPECT_FALSE(facts.mpi.empty());
  EXPECT_LT(std::abs(facts.clock), 60.0) << "the ranks are on one machine";
}

}  // namespace
}  // namespace lockstep::doctor
