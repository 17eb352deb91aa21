// Whole training runs by epochs: validation, snapshots, log, stops and resumes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/best_snapshot.h>
#include <lockstep/runtime/early_stopping.h>
#include <lockstep/runtime/train_epochs.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "epoch_runs.h"
#include "error_of.h"
#include "test_names.h"

namespace lockstep {
namespace {

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

TEST(TrainEpochs, SavesByTime) {
  for (const bool is_due : {false, true}) {
    const SharedFolder folder;
    EpochRun run(folder.file("run"));
    run.after_step = [&](const StepReport& report) {
      run.trainer.finish_saving();
      if (runtime().is_main() && report.update() == 4) {
        const std::string third = testing::step_path(folder.file("run"), 3) + "/manifest.json";
        EXPECT_EQ(std::filesystem::exists(third), is_due);
      }
    };
    // Less than any update takes, and more than any test.
    run.train(EpochOptions().save_every_minutes(is_due ? 1e-300 : 1e9));
    EXPECT_THAT(run.validated, ElementsAre(kBatches));
  }
}

TEST(TrainEpochs, ANamedMetricSaysWhichWeightsAreTheBestAndWhenToStop) {
  const SharedFolder folder;
  EpochRun run(folder.file("run"));
  run.lower_is_better = true;
  run.metric = [](int64_t updates) { return 100.0 - updates; };  // improves for ever
  run.other = [](int64_t updates) { return updates == 10 ? 2.0 : 1.0; };
  run.others_lower_is_better = {false};
  EarlyStopping stopping(run.trainer, EarlyStoppingOptions().patience(1));
  run.train(EpochOptions().epochs(9).metric("other").early_stopping(&stopping));
  EXPECT_EQ(run.validated.back(), 20);
  EXPECT_THAT(load_best(run.trainer, folder.file("run")), EndsWith("step-000000000010"));
  EXPECT_THAT(error_of([&] { run.train(EpochOptions().epochs(12).metric("accuracy")); }),
              HasSubstr("no metric accuracy, but metric, other"));
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

TEST(TrainEpochs, EndsAfterAsManyUpdatesInTheMiddleOfAnEpochToo) {
  const SharedFolder folder;
  EpochRun whole(folder.file("whole"));
  whole.train(EpochOptions().epochs(2));
  {
    EpochRun run(folder.file("run"));
    run.train(EpochOptions().epochs(9).updates(7));
    EXPECT_EQ(run.trainer.updates(), 7);
    EXPECT_THAT(run.validated, ElementsAre(5, 7));
  }
  meet();
  EpochRun run(folder.file("run"));
  run.train(EpochOptions().epochs(9).updates(7));
  EXPECT_THAT(run.validated, IsEmpty()) << "it had ended";
  run.train(EpochOptions().epochs(2).updates(100));
  EXPECT_TRUE(at::equal(flat_masters(run.trainer), flat_masters(whole.trainer)));
}

TEST(TrainEpochs, TheUpdatesOfARunAreThoseThatWereMade) {
  const SharedFolder folder;
  EpochRun run(folder.file("run"), /*accumulate=*/2);
  int windows = 0;
  run.loss_factor = std::numeric_limits<double>::infinity();
  run.after_step = [&](const StepReport& report) {  // the first window is skipped
    windows += report.closes_update() ? 1 : 0;
    run.loss_factor = windows == 0 ? std::numeric_limits<double>::infinity() : 1.0;
  };
  run.train(EpochOptions().epochs(9).updates(2));
  EXPECT_EQ(run.trainer.updates(), 2);
  EXPECT_EQ(windows, 3);
}

TEST(TrainEpochs, EndsWhenTheMetricNoLongerImproves) {
  for (const int64_t every : {0, 2}) {  // validations at the end of epochs, and within them, too
    const SharedFolder folder;
    const auto options = EpochOptions().epochs(9).validate_every(every);
    const auto patience = EarlyStoppingOptions().patience(1);
    const auto metric = [&](int64_t updates) { return updates == (every > 0 ? 4 : 5) ? 1.0 : 2.0; };
    const int64_t last = every > 0 ? 6 : 15;
    {
      EpochRun run(folder.file("run"));
      run.metric = metric;
      EarlyStopping stopping(run.trainer, patience);
      run.train(EpochOptions(options).early_stopping(&stopping));
      EXPECT_EQ(run.validated.back(), last);
      EXPECT_EQ(run.trainer.updates(), last);
      EXPECT_THAT(load_best(run.trainer, folder.file("run")),
                  EndsWith(every > 0 ? "step-000000000004" : "step-000000000005"));
    }
    meet();
    EpochRun again(folder.file("run"));
    EarlyStopping stopping(again.trainer, patience);
    again.train(EpochOptions(options).early_stopping(&stopping));
    EXPECT_TRUE(stopping.stops());
    EXPECT_THAT(again.validated, IsEmpty());
    EXPECT_EQ(again.trainer.updates(), last);
  }
}

TEST(TrainEpochs, HooksLogValuesAndWhatTheyChangeIsInTheSnapshot) {
  const SharedFolder folder;
  int64_t steps = 0, epochs = 0;
  std::string last;
  const auto options = EpochOptions()
                           .epochs(2)
                           .log(RunLogOptions().log_every(1).csv(false))
                           .on_step([&](const StepReport& report, RunLog& log) {
                             ++steps;
                             log.log("own/loss", 2.0 * report.loss());
                           })
                           .on_epoch([&](int64_t epoch, const Evaluation& found, RunLog& log) {
                             epochs = epoch + 1;
                             last = found.text();
                             log.log("own/epoch", static_cast<double>(epoch));
                           });
  {
    EpochRun run(folder.file("run"));
    run.trainer.state("epochs", epochs);
    run.trainer.state("last", last);
    run.train(options);
  }
  EXPECT_EQ(steps, 2 * kBatches);
  const std::string said = std::exchange(last, "");
  epochs = 0;
  meet();
  EpochRun run(folder.file("run"));
  run.trainer.state("epochs", epochs);
  run.trainer.state("last", last);
  run.train(options);
  EXPECT_EQ(epochs, 2);
  EXPECT_EQ(last, said);
  EXPECT_EQ(steps, 2 * kBatches);
  if (runtime().is_main()) {
    EXPECT_FALSE(std::filesystem::exists(folder.file("run") + "/log.csv"));
    std::ifstream file(folder.file("run") + "/log.jsonl");
    std::stringstream log;
    log << file.rdbuf();
    EXPECT_THAT(log.str(), AllOf(HasSubstr("\"own/loss\""), HasSubstr("\"own/epoch\"")));
  }
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
  EXPECT_THAT(error_with(EpochOptions().epochs(0)),
              HasSubstr("EpochOptions.epochs must be >= 1, is 0"));
  EXPECT_THAT(error_with(EpochOptions().save_every(-1)),
              HasSubstr("save_every must be >= 0, is -1"));
  EXPECT_THAT(error_with(EpochOptions().updates(-1)), HasSubstr("updates must be >= 0, is -1"));
  EXPECT_THAT(error_with(EpochOptions().log(RunLogOptions().log_every(0))),
              HasSubstr("RunLogOptions.log_every must be >= 1, is 0"));
  EXPECT_THAT(error_with(EpochOptions().validate_every(-1)),
              HasSubstr("validate_every must be >= 0, is -1"));
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
