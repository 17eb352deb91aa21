// The file of TrainerOptions::digest_log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/trainer.h>

#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "error_of.h"
#include "runtime/models.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// Two micro-batches an update on each rank. The losses of update `bad` overflow.
struct LoggedRun {
  LoggedRun(const std::string& path, double rate, int64_t every = 1, int64_t accumulate = 2)
      : trainer(runtime(), model, AdamW(rate),
                TrainerOptions().accumulate(accumulate).digest_log(path).digest_every(every)) {}
  void train(int64_t from, int64_t to, int64_t bad = -1) {
    for (int64_t step = 2 * from; step < 2 * to; ++step) {
      trainer.step([&] {
        return testing::scaled_loss(*model, step,
                                    step / 2 == bad ? testing::overflow_factor : 1.0F);
      });
    }
  }
  static std::shared_ptr<Mlp> fresh() {
    at::manual_seed(3);
    return std::make_shared<Mlp>();
  }
  std::shared_ptr<Mlp> model = fresh();
  Trainer trainer;
};

/// Only rank 0 writes, so only rank 0 reads: others may be ahead of it or behind.
class DigestLogs : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.file(name); }
  testing::SharedFolder folder_;
};

TEST_F(DigestLogs, HaveALineForEachUpdateWithAllMicroBatchesAndParameters) {
  LoggedRun(path("a"), 1e-2).train(0, 3);
  LoggedRun(path("b"), 1e-2).train(0, 3);
  if (!runtime().is_main()) {
    return;
  }
  const auto lines = lines_of(path("a"));
  EXPECT_EQ(lines, lines_of(path("b")));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[1], HasSubstr(R"({"update":2,"made":2,"micro_batches":[[")"));
  EXPECT_THAT(lines[1], HasSubstr(R"("second.bias")"));
  // A pair of 16 digits for each micro-batch and for each of the four parameters.
  const auto pairs = [](const std::string& line) {
    size_t count = 0;
    for (size_t at = line.find("],["); at != std::string::npos; at = line.find("],[", at + 1)) {
      ++count;
    }
    return count + 2;
  };
  EXPECT_EQ(pairs(lines[1]), static_cast<size_t>(2 * runtime().size() + 4));
}

TEST_F(DigestLogs, DifferFromTheFirstUpdateThatDiffers) {
  LoggedRun(path("a"), 1e-2).train(0, 3);
  LoggedRun other(path("b"), 1e-2);
  other.train(0, 1);
  other.trainer.set_learning_rate(2e-2);
  other.train(1, 3);
  if (runtime().is_main()) {
    const auto a = lines_of(path("a"));
    const auto b = lines_of(path("b"));
    EXPECT_EQ(a[0], b[0]);
    EXPECT_NE(a[1], b[1]);
  }
}

TEST_F(DigestLogs, HashParametersInEachNthUpdateAndCountSkippedOnes) {
  LoggedRun(path("a"), 1e-2, /*every=*/2).train(0, 4, /*bad=*/1);
  if (!runtime().is_main()) {
    return;
  }
  const auto lines = lines_of(path("a"));
  ASSERT_EQ(lines.size(), 4U);
  for (const size_t i : {0, 2}) {
    EXPECT_THAT(lines[i], Not(HasSubstr("parameters")));
    EXPECT_THAT(lines[i + 1], HasSubstr("parameters"));
  }
  EXPECT_THAT(lines[1], HasSubstr(R"("update":2,"made":1,)"));
  EXPECT_THAT(lines[3], HasSubstr(R"("update":4,"made":3,)"));
}

TEST_F(DigestLogs, ARunThatBeginsAgainReplacesTheLinesOfItsUpdates) {
  LoggedRun(path("a"), 1e-2).train(0, 4);
  LoggedRun(path("a"), 2e-2).train(0, 2);
  LoggedRun(path("b"), 2e-2).train(0, 2);
  if (runtime().is_main()) {
    EXPECT_EQ(lines_of(path("a")), lines_of(path("b")));
  }
}

TEST_F(DigestLogs, AFileThatCannotBeWrittenIsAnErrorOnEveryRank) {
  EXPECT_THAT(error_of([&] { LoggedRun(path("nowhere/a"), 1e-2); }), HasSubstr("nowhere"));
}

}  // namespace
}  // namespace lockstep
