// The step as it goes on a device, where the host acts on a decision a window late: here with the
// model in host memory.
#include <lockstep/runtime/trainer/impl/trainer_impl.h>

#include "error_of.h"
#include "runtime/read_watch.h"
#include "runtime/same_report.h"
#include "runtime/trained_mlp.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

struct Trained : testing::TrainedMlp {
  using TrainedMlp::TrainedMlp;
  explicit Trained(const TrainerOptions& options, HostActs acts = HostActs::one_window_late)
      : TrainedMlp(options, acts, AdamW(1e-2).weight_decay(0.1)) {}
};

TrainerOptions dynamic_half(int64_t accumulate) {
  return TrainerOptions()
      .precision(
          Precision::O2().loss_scale(amp::LossScalerOptions().init_scale(256).growth_interval(20)))
      .accumulate(accumulate)
      .clip_grad_norm(0.5)
      .clip_grad_value(0.2)
      .ema(0.9)
      .schedule(WarmupCosine(5, 100));
}

bool planted_at(int64_t step) {
  return step == 3 || step == 50 || step == 51 || step == 120 || step == 199;
}

float planted_factor(int64_t step) {
  const bool here = runtime().rank() == runtime().size() - 1;
  return here && planted_at(step) ? overflow_factor : 1.0F;
}

TEST(StepRules, ALateHostGetsTheBitsOfAPromptOneAndItsReports) {
  constexpr int64_t steps = 200;
  for (const int64_t accumulate : {1, 2}) {
    Trained prompt(dynamic_half(accumulate), HostActs::at_once);
    Trained late(dynamic_half(accumulate), HostActs::one_window_late);
    std::vector<StepReport> expected;
    std::vector<StepReport> found;
    std::vector<double> scales;  // read at once
    for (int64_t step = 0; step < steps; ++step) {
      expected.push_back(prompt.step(step, planted_factor(step)));
      scales.push_back(expected.back().scale());
      found.push_back(late.step(step, planted_factor(step)));
      ASSERT_TRUE(at::equal(late.masters(), prompt.masters())) << step;
    }
    for (size_t step = 0; step < found.size(); ++step) {  // later steps changed no report
      expect_same_report(found[step], expected[step], static_cast<int64_t>(step));
      EXPECT_EQ(expected[step].scale(), scales[step]) << step;
    }
    EXPECT_EQ(late.trainer.impl().step->updates(), prompt.trainer.impl().step->updates());
    EXPECT_LT(late.trainer.impl().step->updates(), steps / accumulate - 2);
    for (size_t b = 0; b < late.trainer.impl().storage.arena().buckets().size(); ++b) {
      EXPECT_TRUE(at::equal(late.trainer.impl().storage.arena().buckets()[b].average,
                            prompt.trainer.impl().storage.arena().buckets()[b].average));
    }
  }
}

TEST(StepRules, NoStepOfALateHostReadsWhatMayLieOnADevice) {
  for (const int64_t accumulate : {1, 2}) {
    Trained late(dynamic_half(accumulate));
    for (int64_t step = 0; step < 60; ++step) {
      const ReadWatch watch;
      const StepReport report = late.step(step, planted_factor(step));
      ASSERT_EQ(watch.count(), 0) << step;
      report.loss();
      ASSERT_GT(watch.count(), 0) << "the watch sees nothing";
    }
  }
}

TEST(StepRules, AFailureReachesLateHostsWhenTheNextWindowBegins) {
  Trained late(dynamic_half(1));
  for (int64_t step = 0; step < 3; ++step) {
    late.step(step);
  }
  const at::Tensor before = late.masters();
  const double scale = late.trainer.impl().step->scaler().value();
  const int failing = runtime().size() - 1;
  std::string message;
  bool closed = false;
  try {
    const StepReport report = late.trainer.step([&]() -> Loss {
      if (runtime().rank() == failing) {
        throw std::runtime_error("no such file: batch.bin");
      }
      return scaled_loss(*late.model, 3);
    });
    closed = true;
    EXPECT_TRUE(report.skipped());
    late.step(4);
  } catch (const std::exception& error) {
    message = error.what();
  }
  EXPECT_EQ(closed, runtime().rank() != failing);
  EXPECT_THAT(message, HasSubstr("no such file: batch.bin"));
  EXPECT_TRUE(at::equal(late.masters(), before));
  EXPECT_EQ(late.trainer.impl().step->scaler().value(), scale);
  EXPECT_EQ(late.trainer.impl().step->updates(), 3);
  EXPECT_FALSE(late.step(5).skipped());
  EXPECT_EQ(late.trainer.impl().step->updates(), 4);
}

TEST(StepRules, LateHostsSpendTheSkipBudgetOneWindowLater) {
  const auto options = TrainerOptions().precision(Precision::O2().loss_scale(
      amp::LossScalerOptions().init_scale(256).max_consecutive_skips(2)));
  for (const HostActs acts : {HostActs::at_once, HostActs::one_window_late}) {
    Trained trained(options, acts);
    trained.step(0);
    const int64_t more = acts == HostActs::at_once ? 2 : 3;
    for (int64_t step = 1; step <= more; ++step) {
      EXPECT_TRUE(trained.step(step, overflow_factor).skipped());
    }
    EXPECT_THAT(error_of([&] { trained.step(9); }), HasSubstr("updates in a row were skipped"));
  }
}

TEST(StepRules, LateHostsFindALossThatIsNaNFromTheBeginning) {
  Trained late(dynamic_half(1));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string message = error_of([&] {
    for (int64_t step = 0; step < 4; ++step) {
      EXPECT_TRUE(late.step(step, nan).skipped());
    }
  });
  EXPECT_THAT(message, HasSubstr("the loss is NaN before the first update"));
}

TEST(StepRules, LateHostsStopTogetherWhenTheNextWindowBegins) {
  Trained late(dynamic_half(1));
  late.step(0);
  if (runtime().rank() == 0) {
    late.trainer.impl().step->consensus().request_stop();
  }
  late.step(1);
  late.step(2);
  EXPECT_TRUE(late.trainer.impl().step->stop_requested());
}

/// In the middle of a window nothing can be saved.
TEST(StepRules, LateHostsAreAskedToStopBetweenWindowsOnly) {
  Trained late(dynamic_half(2));
  late.step(0);
  late.step(1);
  late.trainer.impl().step->consensus().request_stop();
  for (int64_t step = 2; step < 8; ++step) {
    const StepReport report = late.step(step);
    EXPECT_EQ(late.trainer.impl().step->stop_requested(), step >= 5 && report.closes_update())
        << step;
  }
}

/// Programs count with it when to save, on all ranks together.
TEST(StepRules, MicroBatchesAreCountedAlikeOnAllRanksAlsoAfterAFailedWindow) {
  Trained late(dynamic_half(4), HostActs::at_once);
  for (int64_t step = 0; step < 4; ++step) {
    late.step(step);
  }
  const int failing = runtime().size() - 1;
  EXPECT_THAT(error_of([&] {
                for (int64_t step = 4; step < 8; ++step) {
                  late.trainer.step([&]() -> Loss {
                    if (runtime().rank() == failing && step == 5) {
                      throw std::runtime_error("no such file");
                    }
                    return scaled_loss(*late.model, step);
                  });
                }
              }),
              HasSubstr("no such file"));
  EXPECT_EQ(late.step(8).micro_batch(), 5);
  late.trainer.impl().step->abandon();
  EXPECT_EQ(late.step(9).micro_batch(), 5);
}

}  // namespace
}  // namespace lockstep
