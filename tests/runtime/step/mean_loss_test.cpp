// StepReport::mean_loss against a sum in fp64 over the losses of all ranks and micro-batches.
#include "error_of.h"
#include "runtime/across_ranks.h"
#include "runtime/captured_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

#include <lockstep/collectives/check.h>

namespace lockstep {

using namespace detail;

namespace {

/// The sum over all ranks, in fp64.
double sum_over_ranks(double mine) {
  const at::Tensor sum = at::full({}, mine, at::kDouble);
  runtime().control().all_reduce(sum).wait();
  return sum.item<double>();
}

bool same_on_all_ranks(double value) {
  return testing::equal_on_all_ranks(at::full({1}, value, at::kDouble));
}

TEST(MeanLoss, OfMeansIsTheirMeanOverRanksAndMicroBatches) {
  for (const int64_t accumulate : {1, 3}) {
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().accumulate(accumulate));
    double sum = 0.0;
    for (int64_t step = 0; step < 6 * accumulate; ++step) {
      const StepReport report = trainer.step([&] { return testing::scaled_loss(*model, step); });
      sum += sum_over_ranks(report.loss());
      if (!report.closes_update()) {
        EXPECT_TRUE(std::isnan(report.mean_loss())) << step;
        continue;
      }
      const double expected = sum / static_cast<double>(accumulate * runtime().size());
      EXPECT_NEAR(report.mean_loss(), expected, 1e-14 * expected) << step;
      EXPECT_TRUE(same_on_all_ranks(report.mean_loss())) << step;
      EXPECT_TRUE(runtime().size() == 1 || report.mean_loss() != report.loss());
      sum = 0.0;
    }
  }
}

TEST(MeanLoss, OfSumsIsWeightedByTheWeightsOfAllRanks) {
  for (const int64_t accumulate : {1, 3}) {
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().accumulate(accumulate));
    double sum = 0.0;
    double weights = 0.0;
    for (int64_t step = 0; step < 4 * accumulate; ++step) {
      const auto weight = static_cast<double>(1 + (step + 2 * runtime().rank()) % 5);
      double total = 0.0;
      const StepReport report = trainer.step([&] {
        const Loss loss = testing::scaled_loss(*model, step);
        total = loss.tensor().item<double>();
        return Loss::sum(loss.tensor(), weight);
      });
      sum += sum_over_ranks(total);
      weights += sum_over_ranks(weight);
      if (report.closes_update()) {
        EXPECT_NEAR(report.mean_loss(), sum / weights, 1e-14 * sum / weights) << step;
        sum = weights = 0.0;
      }
    }
  }
}

TEST(MeanLoss, CountsTheRanksThatHaveData) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().uneven_data(true));
  for (int64_t step = 0; step <= runtime().size(); ++step) {  // rank r has data in r + 1 steps
    const bool has_data = step <= runtime().rank();
    const StepReport report = has_data
                                  ? trainer.step([&] { return testing::scaled_loss(*model, step); })
                                  : trainer.step_without_data();
    const double sum = sum_over_ranks(has_data ? report.loss() : 0.0);
    const double ranks = sum_over_ranks(has_data ? 1.0 : 0.0);
    if (ranks == 0.0) {
      EXPECT_TRUE(std::isnan(report.mean_loss()));
    } else {
      EXPECT_NEAR(report.mean_loss(), sum / ranks, 1e-14 * sum / ranks) << step;
    }
  }
}

TEST(MeanLoss, OfASkippedUpdateIsThatOfItsLosses) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1),
                  TrainerOptions().precision(testing::half_precision()));
  trainer.step([&] { return testing::scaled_loss(*model, 0); });
  const float factor = runtime().is_main() ? testing::overflow_factor : 1.0F;
  const StepReport skipped = trainer.step([&] { return testing::scaled_loss(*model, 1, factor); });
  EXPECT_TRUE(skipped.skipped());
  EXPECT_EQ(skipped.mean_loss(), std::numeric_limits<double>::infinity());
  const StepReport next = trainer.step([&] { return testing::scaled_loss(*model, 2); });
  EXPECT_NEAR(next.mean_loss(), sum_over_ranks(next.loss()) / runtime().size(),
              1e-14 * next.mean_loss());
}

/// A late host: the report of a window in which another rank failed.
TEST(MeanLoss, IsNotANumberIfARankFailed) {
  CapturedRun run(runtime(), runtime().communicator(), TrainerOptions(), /*graph=*/false);
  run.step(testing::batch(0));
  const bool fails = runtime().rank() == runtime().size() - 1;
  const std::string message = testing::error_of([&] {
    const StepReport report = run.trainer.step([&]() -> Loss {
      LOCKSTEP_CHECK(!fails, "no such file");
      return testing::scaled_loss(*run.model, 1);
    });
    EXPECT_TRUE(std::isnan(report.mean_loss()));
    run.step(testing::batch(2));
  });
  EXPECT_NE(message.find("no such file"), std::string::npos) << message;
}

TEST(MeanLoss, OfCapturedStepsIsThatOfEachStep) {
  if (runtime().size() > 1) {
    return;  // CapturedRanks compares the reports of several ranks
  }
  CapturedRun captured(runtime(), runtime().communicator(), TrainerOptions(), /*graph=*/true);
  std::vector<StepReport> reports;
  for (int64_t step = 0; step < 8; ++step) {
    reports.push_back(captured.step(testing::batch(step, 5, /*overflows=*/false)));
  }
  EXPECT_EQ(captured.calls.launches, 5);
  for (const StepReport& report : reports) {
    EXPECT_EQ(report.mean_loss(), report.loss());
  }
  EXPECT_NE(reports[6].mean_loss(), reports[7].mean_loss());
}

}  // namespace
}  // namespace lockstep
