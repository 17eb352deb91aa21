#include "ranks.h"

#include <gtest/gtest.h>
#include <lockstep/collectives/impl/mpi_comm.h>
#include <lockstep/collectives/mpi/find_mpi.h>

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::testing {
namespace {

using ::testing::EmptyTestEventListener;
using ::testing::TestInfo;
using ::testing::TestPartResult;

/// Prints the failures of a rank other than 0, each line with the rank before it.
class RankPrinter : public EmptyTestEventListener {
 public:
  explicit RankPrinter(int rank) : prefix_("[rank " + std::to_string(rank) + "] ") {}

 private:
  void OnTestStart(const TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }

  void OnTestPartResult(const TestPartResult& result) override {
    if (!result.failed()) {
      return;
    }
    std::istringstream lines(result.message());
    std::ostringstream text;
    text << prefix_ << test_;
    if (result.file_name()) {
      text << " " << result.file_name() << ":" << result.line_number();
    }
    text << "\n";
    for (std::string line; std::getline(lines, line);) {
      text << prefix_ << line << "\n";
    }
    std::cerr << text.str() << std::flush;
  }

  const std::string prefix_;
  std::string test_ = "before the tests";
};

/// Fails a test on every rank when it failed on any.
class RanksAgree : public EmptyTestEventListener {
 public:
  RanksAgree(int rank, int size)
      : rank_(rank),
        failed_(size),
        ranks_(detail::MpiComm::duplicate(detail::load_mpi().world())) {}

 private:
  void OnTestEnd(const TestInfo& test) override {
    const int failed = test.result()->Failed() ? 1 : 0;
    ranks_.all_gather(&failed, sizeof failed, failed_.data());
    std::string others;
    for (size_t rank = 0; rank < failed_.size(); ++rank) {
      if (failed_[rank]) {
        others += " " + std::to_string(rank);
      }
    }
    if (!others.empty() && (rank_ == 0 || !failed)) {
      ADD_FAILURE() << "failed on ranks:" << others;
    }
  }

  const int rank_;
  std::vector<int> failed_;
  const detail::MpiComm ranks_;
};

bool started_as_asked(int rank, int world_size) {
  const char* asked = std::getenv("LOCKSTEP_TEST_RANKS");
  if (asked && world_size == std::atoi(asked)) {
    return true;
  }
  std::cerr << "[rank " << rank << "] this test runs on " << world_size
            << " ranks, but LOCKSTEP_TEST_RANKS is " << (asked ? asked : "not set")
            << "; run it through ctest, or set LOCKSTEP_TEST_RANKS to mpirun's -n\n";
  return false;
}

}  // namespace

void init_tests(int* argc, char** argv) {
  GTEST_FLAG_SET(fail_fast, true);
  ::testing::InitGoogleTest(argc, argv);
}

int run_tests(int rank, int world_size) {
  if (!started_as_asked(rank, world_size)) {
    return 1;
  }
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new RankPrinter(rank));
  }
  if (world_size == 1) {
    return RUN_ALL_TESTS();
  }
  auto* agree = new RanksAgree(rank, world_size);
  listeners.Append(agree);
  const int result = RUN_ALL_TESTS();
  delete listeners.Release(agree);
  return result;
}

}  // namespace lockstep::testing
