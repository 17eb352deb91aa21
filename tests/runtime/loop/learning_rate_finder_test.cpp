// A search for a learning rate, after which a run goes on as if there had been none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/learning_rate_finder.h>
#include <lockstep/runtime/local_updates.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "error_of.h"
#include "searched_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

StepReport step_of(TrainingRun& run, const std::pair<at::Tensor, at::Tensor>& on_host) {
  const auto batch = run.trainer.to_device(on_host);
  return run.trainer.step([&] { return run.model->loss(batch.first, batch.second); });
}

TEST(LearningRateFinder, LeavesTheRunAsItWasBitForBit) {
  for (const TrainerOptions& options : kinds_of_runs()) {
    const SharedFolder folder;
    const Recipe recipe = recipe_of(options);
    const auto undisturbed = state_after(folder.file("a"), recipe, nullptr);
    const auto searched = state_after(folder.file("b"), recipe, [](TrainingRun& run) {
      const auto curve = find_learning_rate(
          run.trainer, run.loader, [&](auto& batch) { return step_of(run, batch); },
          LearningRateSearch().lowest(1e-3).updates(20));
      EXPECT_GE(curve.rates.size(), 2U);
      EXPECT_EQ(run.loader.epoch(), run.loader.position().epoch);
    });
    EXPECT_EQ(searched, undisturbed) << options.describe();
  }
}

TEST(LearningRateFinder, AnErrorOfTheStepLeavesTheRunAsItWas) {
  const SharedFolder folder;
  const auto undisturbed = state_after(folder.file("a"), Recipe(), nullptr);
  const auto searched = state_after(folder.file("b"), Recipe(), [](TrainingRun& run) {
    int step = 0;
    EXPECT_THAT(error_of([&] {
                  static_cast<void>(find_learning_rate(run.trainer, run.loader, [&](auto& batch) {
                    return run.trainer.step([&]() -> Loss {
                      LOCKSTEP_CHECK(++step < 4, "this sample is no good");
                      return run.model->loss(batch.first, batch.second);
                    });
                  }));
                }),
                HasSubstr("this sample is no good"));
  });
  EXPECT_EQ(searched, undisturbed);
}

TEST(LearningRateFinder, SearchesAfterAResumeAtTheEndOfALoop) {
  const SharedFolder folder;
  const auto one_epoch = [] {
    return runtime().loader(testing::Numbered{24}, LoaderOptions().batch_size(2));
  };
  {
    TrainingRun run(runtime(), {});
    auto loader = one_epoch();
    run.trainer.resume(folder.file("run"));
    for (auto& batch : loader) {
      step_of(run, batch);
    }
    run.trainer.save();
  }
  testing::meet();
  TrainingRun run(runtime(), {});
  auto loader = one_epoch();
  run.trainer.resume(folder.file("run"));
  const auto updates = run.trainer.updates();
  const auto curve = find_learning_rate(
      run.trainer, loader, [&](auto& batch) { return step_of(run, batch); },
      LearningRateSearch().updates(3));
  EXPECT_EQ(curve.rates.size(), 3U);
  EXPECT_EQ(run.trainer.updates(), updates);
  for (auto& batch : loader) {
    (void)batch;
    ADD_FAILURE() << "the loop of the saved run was complete";
    break;
  }
}

TEST(LearningRateFinder, TheNextMetricOfAPlateauCounts) {
  TrainingRun run(
      runtime(),
      recipe_of(TrainerOptions().reduce_on_plateau(ReduceOnPlateau().factor(0.5).patience(0))));
  run.trainer.reduce_on_plateau(1.0);
  static_cast<void>(find_learning_rate(run.trainer, run.loader,
                                       [&](auto& batch) { return step_of(run, batch); }));
  EXPECT_TRUE(run.trainer.reduce_on_plateau(1.0));
}

TEST(LearningRateFinder, VariablesOfTheLoopAreGivenBack) {
  TrainingRun run(runtime(), {});
  at::Tensor hidden = at::ones({2});
  at::Tensor none;
  double best = 3.0;
  int64_t seen = 4;
  run.trainer.state("hidden", hidden);
  run.trainer.state("none", none);
  run.trainer.state("best", best);
  run.trainer.state("seen", seen);
  static_cast<void>(find_learning_rate(run.trainer, run.loader, [&](auto& batch) {
    hidden.add_(1);
    none = hidden;
    best += 1.0;
    seen += 1;
    return step_of(run, batch);
  }));
  EXPECT_TRUE(at::equal(hidden, at::ones({2})));
  EXPECT_FALSE(none.defined());
  EXPECT_EQ(best, 3.0);
  EXPECT_EQ(seen, 4);
}

/// loss = weight^2, on every rank alike.
struct Parabola {
  explicit Parabola(TrainerOptions options = {})
      : model(std::make_shared<OneWeight>(at::full({1}, 2.0))),
        trainer(runtime(), model, SGD(0.5), std::move(options)),
        loader(runtime().loader(testing::Numbered{64}, LoaderOptions().batch_size(1))) {}
  StepReport step() {
    return trainer.step([&] { return model->weight.square().sum(); });
  }
  LearningRateCurve search(const LearningRateSearch& options) {
    return find_learning_rate(
        trainer, loader, [&](auto&) { return step(); }, options);
  }
  std::shared_ptr<OneWeight> model;
  Trainer trainer;
  Loader<testing::Numbered> loader;
};

TEST(LearningRateFinder, RatesGrowByOneFactorAndTheLossesAreThoseOfTheUpdates) {
  Parabola run(TrainerOptions().schedule(WarmupCosine(100, 200)));  // whose factor begins at 0
  const auto curve = run.search(
      LearningRateSearch().lowest(1e-4).highest(1e2).updates(61).smoothing(0.5).skip_first(2));
  ASSERT_GT(curve.rates.size(), 40U);
  double weight = 2.0;
  double average = 0.0;
  double correction = 1.0;
  double steepest = 0.0;
  double expected = 0.0;
  std::vector<double> smoothed;
  for (size_t i = 0; i < curve.rates.size(); ++i) {
    EXPECT_NEAR(curve.rates[i], 1e-4 * std::pow(10.0, static_cast<double>(i) / 10),
                1e-9 + i * 1e-12)
        << i;
    EXPECT_NEAR(curve.losses[i] / (weight * weight), 1.0, 1e-3) << i;
    average = 0.5 * average + 0.5 * weight * weight;
    correction *= 0.5;
    smoothed.push_back(average / (1.0 - correction));
    EXPECT_NEAR(curve.smoothed[i] / smoothed[i], 1.0, 1e-3) << i;
    weight -= curve.rates[i] * 2.0 * weight;
  }
  for (size_t i = 3; i + 2 < smoothed.size(); ++i) {
    const double slope = (smoothed[i + 1] - smoothed[i - 1]) / 2;
    if (slope < steepest) {
      steepest = slope;
      expected = curve.rates[i];
    }
  }
  EXPECT_EQ(curve.suggestion, expected);
  EXPECT_GT(curve.smoothed.back(), 4 * *std::min_element(smoothed.begin(), smoothed.end()));
  EXPECT_THAT(curve.text(), HasSubstr("suggested learning rate 0."));
  EXPECT_EQ(run.trainer.learning_rate(), 0.5);
  EXPECT_EQ(run.trainer.updates(), 0);
}

TEST(LearningRateFinder, ASkippedUpdateDoesNotCount) {
  Parabola run(TrainerOptions().precision(
      testing::half_precision().loss_scale(amp::LossScalerOptions().init_scale(65536.0))));
  run.step();  // skipped or not: what follows is the same
  const auto curve = run.search(LearningRateSearch().lowest(1e-3).highest(1e-2).updates(12));
  EXPECT_EQ(curve.rates.size(), 12U);
  EXPECT_LT(curve.losses.back(), curve.losses.front());
}

TEST(LearningRateFinder, RefusesWhatCannotBe) {
  Parabola run;
  EXPECT_THAT(error_of([&] { run.search(LearningRateSearch().lowest(0.0)); }),
              HasSubstr("lowest must be above 0"));
  EXPECT_THAT(error_of([&] { run.search(LearningRateSearch().updates(1)); }),
              HasSubstr("updates must be >= 2"));
  EXPECT_THAT(error_of([&] { run.search(LearningRateSearch().smoothing(1.0)); }),
              HasSubstr("smoothing must be"));
  EXPECT_THAT(error_of([&] { run.search(LearningRateSearch().stop_factor(1.0)); }),
              HasSubstr("stop_factor must be > 1"));
  EXPECT_THAT(error_of([&] { run.search(LearningRateSearch().skip_first(-1)); }),
              HasSubstr("skip_first and skip_last must be >= 0"));
  const SharedFolder folder;
  Parabola logged(TrainerOptions().digest_log(folder.file("digests")));
  EXPECT_THAT(error_of([&] { logged.search({}); }), HasSubstr("TrainerOptions.digest_log"));
  Parabola apart(TrainerOptions().local_updates(LocalUpdates(2)));
  EXPECT_THAT(error_of([&] { apart.search({}); }),
              HasSubstr("find_learning_rate: with TrainerOptions.local_updates"));
  Parabola open(TrainerOptions().accumulate(2));
  open.step();
  EXPECT_THAT(error_of([&] { open.search({}); }), HasSubstr("in the middle of a window"));
}

/// A loss that is finite, of gradients that are not.
at::Tensor diverged(const at::Tensor& weight) {
  return 1e6 + at::sqrt(weight - weight.detach()).sum();
}

TEST(LearningRateFinder, ADivergingSearchEndsAlsoWhereItsUpdatesAreSkipped) {
  Parabola run;
  int step = 0;
  const auto curve = find_learning_rate(
      run.trainer, run.loader,
      [&](auto&) {
        ++step;
        return run.trainer.step([&] {
          return step > 5 ? diverged(run.model->weight) : run.model->weight.square().sum();
        });
      },
      LearningRateSearch().lowest(1e-4).updates(40));
  EXPECT_EQ(step, 6);
  EXPECT_EQ(curve.losses.back(), 1e6);
  EXPECT_EQ(run.trainer.updates(), 0);
}

TEST(LearningRateFinder, NegativeLossesThatFallAreSearchedToTheEnd) {
  Parabola run;
  const auto curve = find_learning_rate(
      run.trainer, run.loader,
      [&](auto&) { return run.trainer.step([&] { return run.model->weight.sum() - 10.0; }); },
      LearningRateSearch().lowest(1e-4).highest(1e-1).updates(20));
  EXPECT_EQ(curve.rates.size(), 20U);
  EXPECT_LT(curve.losses.back(), curve.losses.front());
}

TEST(LearningRateFinder, EndsWhereTheScheduleEndsAndIsRefusedBehindThat) {
  Parabola run(TrainerOptions().schedule(WarmupCosine(1, 4)));
  const auto curve = run.search(LearningRateSearch().lowest(1e-4).updates(20));
  EXPECT_EQ(curve.rates.size(), 4U);
  EXPECT_EQ(run.trainer.updates(), 0);
  for (int i = 0; i < 4; ++i) {
    run.step();
  }
  EXPECT_THAT(error_of([&] { run.search({}); }), HasSubstr("the schedule's factor is 0"));
}

TEST(LearningRateFinder, TooFewRatesForASuggestionAreNamed) {
  Parabola run;
  const auto options = LearningRateSearch().lowest(1e-4).highest(1e-2);
  const auto few = run.search(LearningRateSearch(options).updates(12));  // 11 are left out
  EXPECT_EQ(few.candidates, 1);
  EXPECT_THAT(few.text(), HasSubstr("too few rates for a suggestion: 12 rates"));
  EXPECT_THAT(run.search(LearningRateSearch(options).updates(13)).text(),
              HasSubstr("suggested learning rate"));
}

/// Samples of which one rank can get none any more.
struct Failing {
  const bool* fails;
  size_t size() const { return 64; }
  at::Tensor get(size_t index) const {
    LOCKSTEP_CHECK(!*fails, "no such sample");
    return testing::drawn_on_host({1}, index);
  }
};

TEST(LearningRateFinder, AnErrorOfOneRankOutsideOfAStepDoesNotKeepItWaiting) {
  Parabola run;
  run.step();
  const at::Tensor before = testing::flat_masters(run.trainer);
  bool fails = false;
  auto loader = runtime().loader(Failing{&fails}, LoaderOptions().batch_size(1));
  const bool last = runtime().rank() == runtime().size() - 1;
  int step = 0;
  const std::string message = error_of([&] {
    static_cast<void>(find_learning_rate(
        run.trainer, loader,
        [&](auto&) {
          fails = last && ++step == 3;  // the next batch
          return run.step();
        },
        LearningRateSearch().lowest(1e-4)));
  });
  EXPECT_THAT(message, HasSubstr(last ? "no such sample" : "this rank has left"));
  if (last && runtime().size() > 1) {
    EXPECT_THAT(
        error_of([&] { run.trainer.step([]() -> Loss { throw Error("this rank has left"); }); }),
        HasSubstr("this rank has left"));
  }
  EXPECT_TRUE(at::equal(testing::flat_masters(run.trainer), before));
  EXPECT_EQ(run.trainer.updates(), 1);
  EXPECT_FALSE(run.step().skipped());
  EXPECT_TRUE(run.trainer.replicas_agree());
}

}  // namespace
}  // namespace lockstep
