// Learning rates that a metric lowers.
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "slope.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// A metric that improves, stalls and gets worse.
double metric_of(int64_t epoch) {
  const double noise = testing::drawn_on_host({1}, 77 + epoch).item<double>();
  return 1.0 / static_cast<double>(1 + epoch % 9) + 0.05 * noise;
}

/// LibTorch 2.11 compares with best * threshold where Python adds them, so expected values are
/// torch.optim.lr_scheduler.ReduceLROnPlateau's.
TEST(Plateau, OfAMetricThatRisesByANumberIsThatOfPython) {
  const auto rule = ReduceOnPlateau()
                        .factor(0.25)
                        .patience(1)
                        .threshold(0.01)
                        .mode(ReduceOnPlateau::Mode::max)
                        .threshold_mode(ReduceOnPlateau::Threshold::abs)
                        .min_lr(1e-3);
  const std::vector<double> expected[] = {{0.5, 0.5, 0.125, 0.125, 0.03125, 0.03125, 0.0078125,
                                           0.0078125, 0.001953125, 0.001953125, 0.001953125, 0.001},
                                          {0.5, 0.5, 0.125, 0.125, 0.125, 0.125, 0.03125, 0.03125,
                                           0.03125, 0.03125, 0.03125, 0.0078125}};
  for (const int cooldown : {0, 2}) {
    Slope slope(SGD(0.5),
                TrainerOptions().reduce_on_plateau(ReduceOnPlateau(rule).cooldown(cooldown)));
    std::vector<double> found;
    for (int64_t epoch = 0; epoch < 12; ++epoch) {
      slope.trainer.reduce_on_plateau(static_cast<float>(metric_of(epoch)));
      found.push_back(slope.trainer.learning_rate());
    }
    EXPECT_EQ(found, expected[cooldown / 2]);
  }
}

TEST(Plateau, LowersTheRateAsInLibTorch) {
  using namespace torch::optim;
  using Plateau = ReduceLROnPlateauScheduler;
  for (const bool greater : {false, true}) {
    for (const bool absolute : {false, true}) {
      for (const int cooldown : {0, 2}) {
        if (greater && absolute) {
          continue;
        }
        const at::Tensor weight = at::zeros({1}).requires_grad_(true);
        torch::optim::SGD theirs({weight}, 0.5);
        Plateau scheduler(theirs, greater ? Plateau::max : Plateau::min, /*factor=*/0.25F,
                          /*patience=*/1, /*threshold=*/0.01,
                          absolute ? Plateau::abs : Plateau::rel, cooldown,
                          /*min_lr=*/{1e-3F});
        Slope slope(lockstep::SGD(0.5),
                    TrainerOptions().reduce_on_plateau(
                        ReduceOnPlateau()
                            .factor(0.25)
                            .patience(1)
                            .threshold(0.01)
                            .mode(greater ? ReduceOnPlateau::Mode::max : ReduceOnPlateau::Mode::min)
                            .threshold_mode(absolute ? ReduceOnPlateau::Threshold::abs
                                                     : ReduceOnPlateau::Threshold::rel)
                            .cooldown(cooldown)
                            .min_lr(1e-3F)));
        for (int64_t epoch = 0; epoch < 40; ++epoch) {
          const double before = theirs.param_groups()[0].options().get_lr();
          scheduler.step(static_cast<float>(metric_of(epoch)));
          const double after = theirs.param_groups()[0].options().get_lr();
          EXPECT_EQ(slope.trainer.reduce_on_plateau(static_cast<float>(metric_of(epoch))),
                    after < before)
              << epoch;
          EXPECT_NEAR(slope.trainer.learning_rate(), after, 1e-7 * after) << epoch;
        }
        EXPECT_LT(slope.trainer.learning_rate(), 0.05);
      }
    }
  }
}

TEST(Plateau, GoesOnWhereTheSnapshotWas) {
  const auto rule = ReduceOnPlateau().factor(0.5).patience(2);
  const SharedFolder folder;
  std::vector<double> expected;
  {
    Slope slope(SGD(0.5), saved_in(folder).reduce_on_plateau(rule));
    for (int i = 0; i < 12; ++i) {
      slope.trainer.reduce_on_plateau(1.0);
      slope.step();
      expected.push_back(slope.trainer.learning_rate());
      if (i == 4) {
        slope.trainer.save();
      }
    }
  }
  Slope slope(SGD(0.5), saved_in(folder).reduce_on_plateau(rule));
  slope.trainer.resume();
  for (size_t i = 5; i < 12; ++i) {
    slope.trainer.reduce_on_plateau(1.0);
    EXPECT_FLOAT_EQ(slope.move(), expected[i]) << i;
  }
  EXPECT_EQ(expected.back(), 0.0625);
  Slope without(SGD(0.5), saved_in(folder));
  EXPECT_TRUE(without.trainer.resume().resumed);
  EXPECT_THAT(error_of([&] { without.trainer.reduce_on_plateau(1.0); }),
              HasSubstr("TrainerOptions().reduce_on_plateau(ReduceOnPlateau())"));
}

/// A loop that validates after each epoch saves behind the metric. Resumed, it comes to the end of
/// the same epoch again, without a step.
TEST(ResumedPlateau, AMetricOfTheUpdateThatWasSavedCountsOnce) {
  const auto rule = ReduceOnPlateau().factor(0.5).patience(1);
  const SharedFolder folder;
  {
    Slope slope(SGD(0.5), saved_in(folder).reduce_on_plateau(rule));
    for (int epoch = 0; epoch < 2; ++epoch) {
      slope.step();
      slope.trainer.reduce_on_plateau(1.0);
    }
    slope.trainer.save();
  }
  Slope slope(SGD(0.5), saved_in(folder).reduce_on_plateau(rule));
  slope.trainer.resume();
  EXPECT_FALSE(slope.trainer.reduce_on_plateau(1.0));
  EXPECT_EQ(slope.trainer.learning_rate(), 0.5);
  slope.step();
  EXPECT_TRUE(slope.trainer.reduce_on_plateau(1.0));
  EXPECT_EQ(slope.trainer.learning_rate(), 0.25);
}

TEST(ResumedPlateau, AMetricThatWasNotSavedCounts) {
  const auto rule = ReduceOnPlateau().factor(0.5).patience(0);
  const SharedFolder folder;
  {
    Slope slope(SGD(0.5), saved_in(folder).reduce_on_plateau(rule));
    slope.trainer.reduce_on_plateau(1.0);
    slope.step();
    slope.trainer.save();  // the run ends before its metric is known
  }
  Slope slope(SGD(0.5), saved_in(folder).reduce_on_plateau(rule));
  slope.trainer.resume();
  EXPECT_TRUE(slope.trainer.reduce_on_plateau(1.0));
}

TEST(Plateau, FollowsTheDirectionOfTheMetric) {
  const auto rule = ReduceOnPlateau().factor(0.5).patience(0);
  Slope slope(SGD(0.5), TrainerOptions().reduce_on_plateau(rule));
  const auto lowers = [&](double accuracy) {
    return slope.trainer.reduce_on_plateau(MetricValue(accuracy, /*lower_is_better=*/false));
  };
  EXPECT_FALSE(lowers(0.5));
  EXPECT_FALSE(lowers(0.7));
  EXPECT_TRUE(lowers(0.6));
  Slope other(SGD(0.5), TrainerOptions().reduce_on_plateau(
                            ReduceOnPlateau(rule).mode(ReduceOnPlateau::Mode::min)));
  EXPECT_THAT(error_of([&] {
                other.trainer.reduce_on_plateau(MetricValue(0.5, /*lower_is_better=*/false));
              }),
              HasSubstr("ReduceOnPlateau::mode says the lowest"));
}

TEST(Plateau, ThatIsImpossibleIsRefused) {
  const auto made = [](const ReduceOnPlateau& rule) {
    return error_of([&] { Slope(SGD(0.5), TrainerOptions().reduce_on_plateau(rule)); });
  };
  EXPECT_THAT(made(ReduceOnPlateau().factor(1.0)), HasSubstr("ReduceOnPlateau.factor must be > 0"));
  EXPECT_THAT(made(ReduceOnPlateau().patience(-1)), HasSubstr("ReduceOnPlateau.patience"));
  EXPECT_THAT(made(ReduceOnPlateau().threshold(-1)), HasSubstr("ReduceOnPlateau.threshold"));
  EXPECT_THAT(made(ReduceOnPlateau().cooldown(-1)), HasSubstr("ReduceOnPlateau.cooldown"));
  EXPECT_THAT(made(ReduceOnPlateau().min_lr(-1)), HasSubstr("ReduceOnPlateau.min_lr"));
  EXPECT_THAT(made(ReduceOnPlateau().eps(-1)), HasSubstr("ReduceOnPlateau.eps"));
}

}  // namespace
}  // namespace lockstep
