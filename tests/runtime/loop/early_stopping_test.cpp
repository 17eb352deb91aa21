// Runs that end when nothing improves, and the best weights of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/best_snapshot.h>
#include <lockstep/runtime/early_stopping.h>
#include <lockstep/runtime/evaluate.h>
#include <lockstep/runtime/load_weights.h>

#include <cmath>
#include <fstream>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

struct SmallRun {
  explicit SmallRun(TrainerOptions options = {})
      : model((at::manual_seed(5), std::make_shared<Mlp>())),
        trainer(runtime(), model, SGD(0.1), std::move(options)) {}
  void step() {
    trainer.step([&] { return scaled_loss(*model, trainer.updates()); });
  }
  std::shared_ptr<Mlp> model;
  Trainer trainer;
};

/// After how many of these metrics it stops; 0 for never.
int stops_after(const std::vector<double>& metrics, const EarlyStoppingOptions& options) {
  SmallRun run;
  EarlyStopping stopping(run.trainer, options);
  for (size_t i = 0; i < metrics.size(); ++i) {
    if (stopping.update(metrics[i])) {
      return static_cast<int>(i) + 1;
    }
  }
  return 0;
}

TEST(EarlyStopping, StopsAfterMoreThanPatienceMetricsWithoutImprovement) {
  const auto options = EarlyStoppingOptions().patience(1);
  EXPECT_EQ(stops_after({3, 2, 2, 1, 2, 1}, options), 6);
  EXPECT_EQ(stops_after({3, 2, 2, 1, 2, 0}, options), 0);
  EXPECT_EQ(stops_after({1, 1}, EarlyStoppingOptions().patience(0)), 2);
  EXPECT_EQ(stops_after({1, std::nan(""), 2}, options), 3);
  EXPECT_EQ(stops_after({1, 2, 3, 3, 3}, EarlyStoppingOptions(options).lower_is_better(false)), 5);
  EXPECT_EQ(stops_after({1, 0.95, 0.92, 0.8}, EarlyStoppingOptions(options).min_delta(0.1)), 3);
}

TEST(EarlyStopping, FollowsTheDirectionOfTheMetric) {
  Evaluation found;
  found.values = {{"accuracy", 0.5}};
  found.lower_is_better = false;
  SmallRun run;
  EarlyStopping stopping(run.trainer, EarlyStoppingOptions().patience(0));
  for (const double value : {0.5, 0.6, 0.7}) {
    found.values[0].second = value;
    EXPECT_FALSE(stopping.update(found));
  }
  EXPECT_EQ(stopping.best(), 0.7);
  found.values[0].second = 0.6;
  EXPECT_TRUE(stopping.update(found));
  EarlyStopping lowest(run.trainer, EarlyStoppingOptions().lower_is_better(true).name("lowest"));
  EXPECT_THAT(error_of([&] { static_cast<void>(lowest.update(found)); }),
              HasSubstr("EarlyStoppingOptions::lower_is_better says the lowest"));
  EXPECT_THAT(error_of([&] { static_cast<void>(stopping.update(Evaluation())); }),
              HasSubstr("an Evaluation without a value"));
}

TEST(EarlyStopping, KnowsTheBestMetric) {
  SmallRun run;
  EarlyStopping stopping(run.trainer);
  EXPECT_EQ(stopping.best(), std::numeric_limits<double>::infinity());
  static_cast<void>(stopping.update(2.0));
  EXPECT_TRUE(stopping.improved());
  static_cast<void>(stopping.update(3.0));
  EXPECT_FALSE(stopping.improved());
  EXPECT_EQ(stopping.best(), 2.0);
}

TEST(EarlyStopping, ItsStateIsInSnapshots) {
  const SharedFolder folder;
  const auto options = TrainerOptions().snapshots(SnapshotOptions().folder(folder.file("run")));
  const auto patience = EarlyStoppingOptions().patience(1);
  {
    SmallRun run(options);
    EarlyStopping stopping(run.trainer, patience);
    run.step();
    EXPECT_FALSE(stopping.update(1.0));
    EXPECT_FALSE(stopping.update(2.0));
    run.trainer.save();
  }
  meet();
  SmallRun run(options);
  run.trainer.resume();
  EarlyStopping stopping(run.trainer, patience);
  EXPECT_EQ(stopping.best(), 1.0);
  run.step();
  EXPECT_TRUE(stopping.update(1.5));
}

/// A loop that validates after each epoch saves behind the metric. Resumed, it comes to the end of
/// the same epoch again, without a step.
TEST(EarlyStopping, AMetricOfTheUpdateThatWasSavedCountsOnce) {
  const SharedFolder folder;
  const auto options = TrainerOptions().snapshots(SnapshotOptions().folder(folder.file("run")));
  const auto patience = EarlyStoppingOptions().patience(1);
  {
    SmallRun run(options);
    EarlyStopping stopping(run.trainer, patience);
    for (int epoch = 0; epoch < 2; ++epoch) {
      run.step();
      EXPECT_FALSE(stopping.update(1.0));
    }
    run.trainer.save();
  }
  meet();
  SmallRun run(options);
  EarlyStopping stopping(run.trainer, patience);
  run.trainer.resume();
  EXPECT_FALSE(stopping.update(1.0));
  EXPECT_TRUE(stopping.update(1.0)) << "the second one at this update is another metric";
}

TEST(EarlyStopping, NamesAnOptionOutOfRange) {
  SmallRun run;
  const auto problem_of = [&](const EarlyStoppingOptions& options) {
    return error_of([&] { const EarlyStopping stopping(run.trainer, options); });
  };
  EXPECT_THAT(problem_of(EarlyStoppingOptions().patience(-1)), HasSubstr("patience"));
  EXPECT_THAT(problem_of(EarlyStoppingOptions().min_delta(-1.0)), HasSubstr("min_delta"));
  EXPECT_THAT(problem_of(EarlyStoppingOptions().name("")), HasSubstr("name"));
}

/// Updates 1 to 4, saved with these metrics, and the weights after each.
std::vector<at::Tensor> saved_with(const std::vector<std::optional<double>>& metrics,
                                   SmallRun& run) {
  std::vector<at::Tensor> weights;
  for (const auto& metric : metrics) {
    run.step();
    run.trainer.save(metric);
    weights.push_back(flat_masters(run.trainer).clone());
  }
  return weights;
}

TrainerOptions saving_to(const std::string& folder) {
  return TrainerOptions().snapshots(
      SnapshotOptions().folder(folder).keep(KeepOptions().last(10).best(2)));
}

TEST(BestSnapshot, ATrainerLoadsTheWeightsOfTheBestMetric) {
  const SharedFolder folder;
  SmallRun run(saving_to(folder.file("run")));
  const auto weights = saved_with({3.0, 1.0, 1.0, std::nullopt, 2.0}, run);
  const std::string path = load_best(run.trainer, folder.file("run/"));
  EXPECT_THAT(path, EndsWith("/run/step-000000000002"));  // the first of two
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), weights[1]));
  EXPECT_EQ(run.trainer.updates(), 5);
}

TEST(BestSnapshot, TheOptionsOfTheTrainerThatSavedSayWhichMetricIsBetter) {
  const SharedFolder folder;
  SmallRun run(TrainerOptions().snapshots(SnapshotOptions()
                                              .folder(folder.file("run"))
                                              .keep(KeepOptions().last(1).lower_is_better(false))));
  saved_with({1.0, 3.0, 2.0}, run);
  run.trainer.finish_saving();
  EXPECT_THAT(best_snapshot(folder.file("run")), EndsWith("step-000000000002"));
}

TEST(BestSnapshot, AMetricSaysWhichValueIsTheBest) {
  const SharedFolder folder;
  SmallRun run(TrainerOptions().snapshots(
      SnapshotOptions().folder(folder.file("run")).keep(KeepOptions().last(1))));
  for (const double accuracy : {1.0, 3.0, 2.0}) {
    run.step();
    run.trainer.save(MetricValue(accuracy, /*lower_is_better=*/false));
  }
  run.trainer.finish_saving();
  EXPECT_THAT(best_snapshot(folder.file("run")), EndsWith("step-000000000002"));
}

TEST(BestSnapshot, TheDefaultOptionsKeepIt) {
  const SharedFolder folder;
  SmallRun run(TrainerOptions().snapshots(SnapshotOptions().folder(folder.file("run"))));
  const auto weights = saved_with({1.0, 2.0, 3.0, 4.0, 5.0}, run);
  load_best(run.trainer, folder.file("run"));
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), weights[0]));
}

/// A loop that saves every so often has saved the last update of an epoch before it is evaluated.
TEST(BestSnapshot, AMetricOfAnUpdateThatIsSavedIsAddedToItsSnapshot) {
  for (const bool asynchronous : {true, false}) {
    const SharedFolder folder;
    const auto options = TrainerOptions().snapshots(
        SnapshotOptions().folder(folder.file("run")).asynchronous(asynchronous));
    {
      SmallRun run(options);
      saved_with({2.0, std::nullopt}, run);
      run.trainer.save(1.0);
      run.trainer.finish_saving();
      EXPECT_THAT(best_snapshot(folder.file("run")), EndsWith("step-000000000002"));
      run.trainer.save(3.0);
      run.trainer.finish_saving();
      EXPECT_THAT(best_snapshot(folder.file("run")), EndsWith("step-000000000001"));
    }
    meet();
    SmallRun run(options);
    EXPECT_EQ(run.trainer.resume().update, 2) << "the snapshot is whole";
    run.trainer.save(0.5);
    EXPECT_THAT(load_best(run.trainer, folder.file("run")), EndsWith("step-000000000002"));
  }
}

TEST(BestSnapshot, EveryRankMustPassTheSameMetric) {
  const SharedFolder folder;
  SmallRun run(saving_to(folder.file("run")));
  run.step();
  if (runtime().size() == 1) {
    EXPECT_NO_THROW(run.trainer.save(1.0));
    return;
  }
  const double mine = 1.0 + runtime().rank() * 1e-15;
  EXPECT_THAT(error_of([&] { run.trainer.save(mine); }), HasSubstr("metric 1.000000000000001"));
  run.trainer.save();
  const auto on_one = runtime().is_main() ? std::make_optional(1.0) : std::nullopt;
  EXPECT_THAT(error_of([&] { run.trainer.save(on_one); }),
              AllOf(HasSubstr("rank 1 is none"), HasSubstr("rank 0 is 1")));
}

at::Tensor flat_averages(const Trainer& trainer) {
  std::vector<at::Tensor> flat;
  for (const auto& [name, average] : trainer.averaged()) {
    flat.push_back(average.flatten());
  }
  return at::cat(flat);
}

TEST(BestSnapshot, TheMovingAveragesAreThoseOfItsUpdate) {
  for (const bool sharded : {false, true}) {
    const SharedFolder folder;
    SmallRun run(saving_to(folder.file("run")).ema(0.5).shard_optimizer(sharded));
    saved_with({1.0}, run);
    const at::Tensor averages = flat_averages(run.trainer);
    saved_with({2.0}, run);
    ASSERT_FALSE(at::equal(flat_averages(run.trainer), averages));
    load_best(run.trainer, folder.file("run"));
    EXPECT_TRUE(at::equal(flat_averages(run.trainer), averages));
  }
}

TEST(BestSnapshot, ADamagedOneIsPassedOver) {
  const SharedFolder folder;
  SmallRun run(saving_to(folder.file("run")));
  const auto weights = saved_with({3.0, 1.0, 2.0}, run);
  run.trainer.finish_saving();
  meet();
  if (runtime().is_main()) {
    std::fstream file(testing::step_path(folder.file("run"), 2) + "/model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const auto last = static_cast<char>(file.get());
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(last ^ 1));
  }
  meet();
  EXPECT_THAT(best_snapshot(folder.file("run")), EndsWith("step-000000000003"));
  load_best(run.trainer, folder.file("run"));
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), weights[2]));
}

TEST(BestSnapshot, NoneIsAnErrorOnEveryRankThatSaysWhatToDo) {
  const SharedFolder folder;
  SmallRun run(saving_to(folder.file("run")));
  saved_with({std::nullopt, std::nullopt}, run);
  EXPECT_THAT(error_of([&] { load_best(run.trainer, folder.file("run")); }),
              AllOf(HasSubstr("no snapshot in"), HasSubstr("Trainer::save(metric)")));
}

}  // namespace
}  // namespace lockstep
