// Whole training runs by epochs: validation, snapshots, log, stops and resumes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/best_snapshot.h>
#include <lockstep/runtime/train_epochs.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "snapshot_runs.h"
#include "trainer_runs.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::error_of;
using testing::flat_masters;
using ::testing::HasSubstr;
using testing::meet;
using testing::Mlp;
using testing::Numbered;
using testing::runtime;
using testing::SharedFolder;

constexpr int64_t kBatches = 5;  // of an epoch

/// A program that trains by epochs.
struct EpochRun {
  explicit EpochRun(const std::string& folder, int64_t accumulate = 1, TrainerOptions options = {},
                    int64_t epochs_per_loop = 1)
      : folder(folder),
        model((at::manual_seed(5), std::make_shared<Mlp>())),
        trainer(runtime(), model, AdamW(1e-2), options.accumulate(accumulate)),
        loader(runtime().loader(
            Numbered{static_cast<size_t>(kBatches * 3 * runtime().size())},
            LoaderOptions().batch_size(3).shuffle(true).epochs(epochs_per_loop))) {}

  void train(EpochOptions options) {
    train_epochs(
        trainer, loader, options.folder(folder),
        [&](auto& batch) {
          const auto report = trainer.step([&] {
            const auto [input, target] = trainer.to_device(batch);
            return at::mse_loss(model->forward(input).narrow(1, 0, 2), target) * loss_factor;
          });
          after_step(report);
          return report;
        },
        [&] {
          validated.push_back(trainer.updates());
          Evaluation found;
          found.values = {{"metric", metric(trainer.updates())}, {"other", 7.0}};
          found.lower_is_better = lower_is_better;
          return found;
        });
  }

  /// Trains until a request to stop, made after update `last`, has saved and left.
  void train_until_stopped(EpochOptions options, int64_t last) {
    after_step = [this, last](const StepReport& report) {
      if (report.closes_update() && report.update() == last) {
        trainer.request_stop();
      }
    };
    try {
      train(std::move(options));
      ADD_FAILURE() << "went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::preempted);
    }
  }

  std::string folder;
  std::shared_ptr<Mlp> model;
  Trainer trainer;
  Loader<Numbered> loader;
  std::vector<int64_t> validated;  // after these updates
  std::optional<bool> lower_is_better;
  double loss_factor = 1.0;
  std::function<void(const StepReport&)> after_step = [](const StepReport&) {};
  std::function<double(int64_t)> metric = [](int64_t updates) { return 1.0 / updates; };
};

TEST(TrainEpochs, EachEpochEndsWithAValidationAndASnapshotThatHasItsFirstMetric) {
  const SharedFolder folder;
  EpochRun run(folder.file("run"));
  run.metric = [](int64_t updates) { return updates == 10 ? 1.0 : 2.0; };
  run.train(EpochOptions().epochs(3));
  EXPECT_THAT(run.validated, ElementsAre(5, 10, 15));
  EXPECT_THAT(load_best(run.trainer, folder.file("run")), EndsWith("step-000000000010"));
  if (runtime().is_main()) {
    std::ifstream file(folder.file("run") + "/log.jsonl");
    std::stringstream log;
    log << file.rdbuf();
    EXPECT_THAT(log.str(), AllOf(HasSubstr("\"validation/metric\""), HasSubstr("epoch_seconds"),
                                 HasSubstr("\"validation/other\"")));
  }
}

TEST(TrainEpochs, ARunThatFailsAnywhereEndsWithTheBitsOfTheUnbrokenRun) {
  const SharedFolder folder;
  EpochRun whole(folder.file("whole"));
  whole.train(EpochOptions().epochs(3));
  for (const int64_t last : {3, 5, 8, 15}) {
    const std::string path = folder.file("broken" + std::to_string(last));
    {
      EpochRun run(path);
      run.after_step = [&](const StepReport& report) {
        LOCKSTEP_CHECK(report.update() < last, "the program fails");
      };
      EXPECT_THAT(error_of([&] { run.train(EpochOptions().epochs(3).save_every(1)); }),
                  HasSubstr("the program fails"));
    }
    meet();
    EpochRun run(path);
    run.train(EpochOptions().epochs(3).save_every(1));
    EXPECT_TRUE(at::equal(flat_masters(run.trainer), flat_masters(whole.trainer))) << last;
    EXPECT_EQ(run.validated.back(), 15);
  }
}

TEST(TrainEpochs, ARequestToStopSavesAndLeaves) {
  const SharedFolder folder;
  EpochRun whole(folder.file("whole"));
  whole.train(EpochOptions().epochs(2));
  for (const int64_t last : {3, 5}) {  // in an epoch, and at its end
    const std::string path = folder.file("stopped" + std::to_string(last));
    EpochRun(path).train_until_stopped(EpochOptions().epochs(2), last);
    meet();
    EpochRun run(path);
    run.train(EpochOptions().epochs(2));
    EXPECT_TRUE(at::equal(flat_masters(run.trainer), flat_masters(whole.trainer))) << last;
  }
}

TEST(TrainEpochs, AFinishedRunThatIsStartedAgainTrainsNoMore) {
  const SharedFolder folder;
  {
    EpochRun run(folder.file("run"));
    run.train(EpochOptions().epochs(2));
  }
  meet();
  EpochRun run(folder.file("run"));
  run.train(EpochOptions().epochs(2));
  EXPECT_EQ(run.trainer.updates(), 2 * kBatches);
  run.train(EpochOptions().epochs(3));
  EXPECT_EQ(run.trainer.updates(), 3 * kBatches);
}

TEST(TrainEpochs, MicroBatchesThatMakeNoWholeUpdateAreDroppedAtTheEndOfAnEpoch) {
  const SharedFolder folder;
  EpochRun run(folder.file("run"), /*accumulate=*/2);
  run.train(EpochOptions().epochs(2).save_every(1));
  EXPECT_THAT(run.validated, ElementsAre(2, 4));
}

TEST(TrainEpochs, SavesAfterEveryFewUpdates) {
  const SharedFolder folder;
  EpochRun run(folder.file("run"));
  run.after_step = [&](const StepReport& report) {
    run.trainer.finish_saving();
    if (runtime().is_main() && report.update() == 4) {
      EXPECT_TRUE(std::ifstream(testing::step_path(folder.file("run"), 2) + "/manifest.json"));
      EXPECT_FALSE(std::ifstream(testing::step_path(folder.file("run"), 3) + "/manifest.json"));
    }
  };
  run.train(EpochOptions().save_every(2));
}

TEST(TrainEpochs, ValidatesWithinAnEpoch) {
  const SharedFolder folder;
  EpochRun whole(folder.file("whole"));
  whole.metric = [](int64_t updates) { return updates == 4 ? 1.0 : 2.0; };
  whole.train(EpochOptions().epochs(2).validate_every(2));
  EXPECT_THAT(whole.validated, ElementsAre(2, 4, 5, 6, 8, 10));
  EXPECT_THAT(load_best(whole.trainer, folder.file("whole")), EndsWith("step-000000000004"));
  EpochRun plain(folder.file("plain"));
  plain.train(EpochOptions().epochs(2));
  EpochRun(folder.file("run")).train_until_stopped(EpochOptions().epochs(2).validate_every(2), 6);
  meet();
  EpochRun run(folder.file("run"));
  run.train(EpochOptions().epochs(2).validate_every(2));
  EXPECT_THAT(run.validated, ElementsAre(8, 10));
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), flat_masters(plain.trainer)));
}

TEST(TrainEpochs, TheMetricSaysWhichValueIsTheBest) {
  const SharedFolder folder;
  EpochRun run(folder.file("run"));
  run.lower_is_better = false;
  run.metric = [](int64_t updates) { return updates == 10 ? 2.0 : 1.0; };
  run.train(EpochOptions().epochs(3));
  EXPECT_THAT(load_best(run.trainer, folder.file("run")), EndsWith("step-000000000010"));
  const auto lowest = SnapshotOptions().keep(KeepOptions().lower_is_better(true));
  EpochRun contradicted(folder.file("other"), 1, TrainerOptions().snapshots(lowest));
  contradicted.lower_is_better = false;
  EXPECT_THAT(error_of([&] { contradicted.train(EpochOptions()); }),
              AllOf(HasSubstr("the highest value of this metric is the best"),
                    HasSubstr("KeepOptions::lower_is_better says the lowest")));
}

TEST(TrainEpochs, WithoutResumeTheSnapshotsOfAnotherRunAreRefused) {
  const SharedFolder folder;
  {
    EpochRun run(folder.file("run"));
    run.train(EpochOptions());
  }
  meet();
  const auto model = std::make_shared<Mlp>();
  const auto options = TrainerOptions().snapshots(SnapshotOptions().folder(folder.file("run")));
  Trainer trainer(runtime(), model, AdamW(1e-2), options);
  EpochRun other(folder.file("other"));
  const auto step = [&](auto& batch) {
    return trainer.step([&] { return model->forward(trainer.to_device(batch.first)).sum(); });
  };
  EXPECT_THAT(error_of([&] {
                train_epochs(trainer, other.loader,
                             EpochOptions().folder(folder.file("run")).resume(false), step,
                             [] { return Evaluation(); });
              }),
              HasSubstr("holds the snapshots of another run"));
}

TEST(TrainEpochs, NamesWhatIsWrong) {
  const SharedFolder folder;
  EpochRun run(folder.file("run"));
  const auto error_with = [&](const EpochOptions& options) {
    return error_of([&] { run.train(options); });
  };
  EXPECT_THAT(error_with(EpochOptions().epochs(0)), HasSubstr("epochs is 0"));
  EXPECT_THAT(error_with(EpochOptions().save_every(-1)), HasSubstr("save_every is -1"));
  EXPECT_THAT(error_with(EpochOptions().validate_every(-1)), HasSubstr("validate_every is -1"));
  run.folder = "";
  EXPECT_THAT(error_with(EpochOptions()), HasSubstr("folder is empty"));
  run.folder = folder.file("run");
  const auto step = [&](auto& batch) {
    return run.trainer.step(
        [&] { return run.model->forward(run.trainer.to_device(batch.first)).sum(); });
  };
  EXPECT_THAT(error_of([&] {
                train_epochs(run.trainer, run.loader, EpochOptions().folder(run.folder), step,
                             [] { return Evaluation(); });
              }),
              HasSubstr("validate() returned no value"));
}

TEST(TrainEpochs, ALoaderWithEpochsOfItsOwnIsRefused) {
  const SharedFolder folder;
  EpochRun run(folder.file("run"), 1, {}, /*epochs_per_loop=*/2);
  EXPECT_THAT(error_of([&] { run.train(EpochOptions().epochs(3)); }),
              HasSubstr("the loader has LoaderOptions::epochs(2)"));
  EXPECT_EQ(run.trainer.updates(), 0);
}

TEST(TrainEpochs, AnEpochThatIsShorterThanAnUpdateIsRefused) {
  const SharedFolder folder;
  EpochRun run(folder.file("run"), /*accumulate=*/6);
  EXPECT_THAT(
      error_of([&] { run.train(EpochOptions().epochs(3)); }),
      HasSubstr("an epoch of 5 batches on each rank is less than an update of 6 micro-batches"));
}

TEST(TrainEpochs, ATrainerThatSavesElsewhereIsRefused) {
  const SharedFolder folder;
  const auto saves_to = [&](const std::string& name) {
    return TrainerOptions().snapshots(SnapshotOptions().folder(folder.file(name)));
  };
  EpochRun other(folder.file("run"), 1, saves_to("other"));
  EXPECT_THAT(error_of([&] { other.train(EpochOptions()); }),
              AllOf(HasSubstr("other"), HasSubstr("name the same folder in both")));
  EpochRun none(folder.file("run"));
  EXPECT_THAT(error_of([&] { none.train(EpochOptions().resume(false)); }),
              HasSubstr("must know where to save"));
  EpochRun same(folder.file("run"), 1, saves_to("./run/"));
  same.train(EpochOptions().resume(false));
  EXPECT_EQ(same.trainer.updates(), 5);
}

/// The sum of all weights of this rank's model.
double sum_of(const Mlp& model) {
  double sum = 0.0;
  for (const at::Tensor& parameter : model.parameters()) {
    sum += parameter.detach().to(at::kDouble).sum().item<double>();
  }
  return sum;
}

TEST(TrainEpochs, ARoundOfLocalUpdatesEndsBeforeTheValidationWhoseMetricIsSaved) {
  const SharedFolder folder;
  EpochRun run(folder.file("run"), /*accumulate=*/2,
               TrainerOptions().local_updates(LocalUpdates(3)));
  std::vector<double> metrics;
  run.metric = [&](int64_t) {
    metrics.push_back(sum_of(*run.model));
    return metrics.back();
  };
  run.train(EpochOptions().epochs(2).save_every(1));  // two updates an epoch, and a rest
  ASSERT_EQ(metrics.size(), 2U);
  load_best(run.trainer, folder.file("run"));
  EXPECT_EQ(sum_of(*run.model), std::min(metrics[0], metrics[1]));
}

TEST(TrainEpochs, ASkippedUpdateIsNeitherValidatedNorSaved) {
  const SharedFolder folder;
  EpochRun run(folder.file("run"));
  int windows = 0;
  run.loss_factor = std::numeric_limits<double>::infinity();
  run.after_step = [&](const StepReport&) {  // windows 1 and 4 are skipped
    run.loss_factor = ++windows == 3 ? std::numeric_limits<double>::infinity() : 1.0;
  };
  run.train(EpochOptions().epochs(1).validate_every(2).save_every(1));
  EXPECT_THAT(run.validated, ElementsAre(2, 3));
  EXPECT_FALSE(std::filesystem::exists(testing::step_path(folder.file("run"), 0)));
}

TEST(TrainEpochs, AnEpochOfLocalUpdatesMayEndWithSkipsAfterASnapshot) {
  const SharedFolder folder;
  const auto options = TrainerOptions().local_updates(LocalUpdates(3));
  at::Tensor masters;
  {
    EpochRun run(folder.file("run"), /*accumulate=*/2, options);
    int windows = 0;
    run.after_step = [&](const StepReport& report) {
      windows += report.closes_update() ? 1 : 0;
      run.loss_factor = windows == 1 ? std::numeric_limits<double>::infinity() : 1.0;
    };
    run.train(EpochOptions().epochs(2).save_every(1));  // the second update of epoch 1 is skipped
    EXPECT_THAT(run.validated, ElementsAre(1, 3));
    EXPECT_TRUE(run.trainer.replicas_agree());
    masters = flat_masters(run.trainer).clone();
  }
  meet();
  EpochRun resumed(folder.file("run"), /*accumulate=*/2, options);
  resumed.train(EpochOptions().epochs(2));
  EXPECT_TRUE(at::equal(flat_masters(resumed.trainer), masters));
}

TEST(TrainEpochs, AStopInARoundOfLocalUpdatesResumesWithTheBitsOfTheUnbrokenRun) {
  const SharedFolder folder;
  const auto options = TrainerOptions().local_updates(LocalUpdates(3));
  EpochRun whole(folder.file("whole"), /*accumulate=*/2, options);
  whole.train(EpochOptions().epochs(2));
  // A request after update 1 stops at 2, the last of its epoch, after which a batch is left.
  for (const int64_t last : {1, 2, 3}) {
    const std::string path = folder.file("stopped" + std::to_string(last));
    EpochRun(path, /*accumulate=*/2, options).train_until_stopped(EpochOptions().epochs(2), last);
    meet();
    EpochRun run(path, /*accumulate=*/2, options);
    run.train(EpochOptions().epochs(2));
    EXPECT_TRUE(at::equal(flat_masters(run.trainer), flat_masters(whole.trainer))) << last;
  }
}

TEST(TrainEpochs, AResumedRestOfAnEpochMayBeShorterThanAnUpdate) {
  const SharedFolder folder;
  {
    EpochRun run(folder.file("run"), /*accumulate=*/2);
    run.after_step = [&](const StepReport& report) {
      if (report.closes_update() && report.update() == 2) {  // one batch of the epoch is left
        run.trainer.save();
        run.trainer.finish_saving();
        LOCKSTEP_CHECK(false, "the program fails");
      }
    };
    EXPECT_THAT(error_of([&] { run.train(EpochOptions().epochs(2)); }),
                HasSubstr("the program fails"));
  }
  meet();
  EpochRun run(folder.file("run"), /*accumulate=*/2);
  run.train(EpochOptions().epochs(2));
  EXPECT_THAT(run.validated, ElementsAre(2, 4));
}

}  // namespace
}  // namespace lockstep
