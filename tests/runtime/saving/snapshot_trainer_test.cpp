// What a Trainer does when saving or resuming goes wrong, or goes another way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>

#include "checkpointing/snapshot_fault_file_system.h"
#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "runtime/windows_late.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// Changes one byte in the middle of a file, on one rank for all.
void damage(const std::string& path) {
  if (runtime().is_main()) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(0, std::ios::end);
    const auto middle = static_cast<std::streamoff>(file.tellg()) / 2;
    file.seekg(middle);
    const char old = static_cast<char>(file.get());
    file.seekp(middle);
    file.put(static_cast<char>(old ^ 1));
  }
  meet();
}

/// An Mlp with one more buffer.
std::shared_ptr<testing::Mlp> mlp_with(const std::string& name, const at::Tensor& buffer) {
  auto model = std::make_shared<testing::Mlp>();
  model->register_buffer(name, buffer);
  return model;
}

TEST(SavingTrainer, RefusesAModelThatNoSnapshotCanHold) {
  const SharedFolder folder;
  const auto options = [&](bool asynchronous) {
    return TrainerOptions().snapshots(
        SnapshotOptions().folder(folder.file("run")).asynchronous(asynchronous));
  };
  const struct {
    std::string name;
    at::Tensor buffer;
    const char* says;
  } cases[] = {
      {"twiddle", at::ones({2}, at::kComplexDouble), "complex64"},
      {"__metadata__", at::ones({2}), "reserved"},
      {"bad\xff", at::ones({2}), "UTF-8"},
      {std::string(4090, 'n'), at::ones({2}), "4096"},
      {"deep", at::ones({1, 1, 1, 1, 1, 1, 1, 1, 1}), "dimensions"},
  };
  for (const auto& [name, buffer, says] : cases) {
    const auto model = mlp_with(name, buffer);
    for (const bool asynchronous : {true, false}) {
      EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1), options(asynchronous)); }),
                  AllOf(HasSubstr("\"" + name.substr(0, 100)), HasSubstr(says)));
    }
    Trainer trainer(runtime(), model, SGD(0.1));  // without snapshots it trains
    EXPECT_THAT(error_of([&] { trainer.resume(folder.file("run")); }), HasSubstr(says));
  }
  meet();
  EXPECT_FALSE(snapshot::exists(folder.file("run")));
}

TEST(SavingTrainer, RefusesAVariableThatNoSnapshotCanHold) {
  const auto model = std::make_shared<testing::Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  at::Tensor twiddle = at::ones({2}, at::kComplexDouble);
  int64_t number = 0;
  EXPECT_THAT(error_of([&] { trainer.state("twiddle", twiddle); }), HasSubstr("\"twiddle\""));
  EXPECT_THAT(error_of([&] { trainer.state("bad\xff", number); }), HasSubstr("UTF-8"));
}

TEST(ResumedRuns, DamagedNewestIsSkippedSaidAndSetAside) {
  const SharedFolder folder;
  save_each(folder.file("run"), 3);
  damage(step_path(folder.file("run"), 3) + "/model.safetensors");
  TrainingRun run(runtime(), {});
  const ResumeReport report = run.trainer.resume(folder.file("run"));
  EXPECT_EQ(report.update, 2);
  EXPECT_THAT(report.notes, Contains(AllOf(HasSubstr("step-000000000003"), HasSubstr("damaged"))));
  run.done = 2;
  run.train_to(3);
  run.trainer.save();
  EXPECT_FALSE(run.trainer.finish_saving()->error.has_value());
  meet();
  EXPECT_THAT(snapshot::names_in(folder.file("run")),
              AllOf(Contains("step-000000000003"), Contains("step-000000000003.aside")));
}

TEST(ResumedRuns, FolderWithDamagedSnapshotsOnlyIsNoNewRun) {
  const SharedFolder folder;
  save_each(folder.file("run"), 1);
  damage(step_path(folder.file("run"), 1) + "/manifest.json");
  TrainingRun run(runtime(), {});
  const std::string error = error_of([&] { run.trainer.resume(folder.file("run")); });
  EXPECT_THAT(error, AllOf(HasSubstr("none of the snapshots"), HasSubstr("manifest.json")));
}

TEST(ResumedRuns, RunTakenBackSetsLaterSnapshotsAside) {
  const SharedFolder folder;
  save_each(folder.file("run"), 3);
  {
    TrainingRun back(runtime(), {});
    EXPECT_EQ(back.trainer.resume(step_path(folder.file("run"), 1)).update, 1);
  }
  TrainingRun newest(runtime(), {});
  EXPECT_EQ(newest.trainer.resume(folder.file("run")).update, 1);
  meet();
  EXPECT_THAT(snapshot::names_in(folder.file("run")), Contains("step-000000000002.aside"));
}

/// Every rank's numbers, one rank after the other.
std::vector<int64_t> of_all_ranks(const std::vector<int64_t>& mine) {
  Communicator control = runtime().control();
  std::vector<int64_t> all;
  for (const std::string& bytes : control.all_gather_bytes(std::string(
           reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(int64_t)))) {
    const size_t before = all.size();
    all.resize(before + bytes.size() / sizeof(int64_t));
    std::memcpy(all.data() + before, bytes.data(), bytes.size());
  }
  return all;
}

TEST(ResumedRuns, SavedByAllRanksGoesOnOnOneAndBackEachSampleOnce) {
  const SharedFolder folder;
  Recipe recipe;
  recipe.options.precision(testing::half_precision());
  std::vector<int64_t> seen;
  at::Tensor saved;
  {
    TrainingRun run(runtime(), recipe);
    run.trainer.resume(folder.file("run"));
    run.train_to(4);
    run.trainer.save();
    saved = flat_masters(run.trainer);
    seen = of_all_ranks(run.seen);
  }
  if (runtime().is_main()) {
    Runtime solo = testing::solo_runtime();
    TrainingRun alone(solo, recipe);
    const ResumeReport report = alone.trainer.resume(folder.file("run"));
    EXPECT_EQ(report.notes.empty(), runtime().size() == 1);
    EXPECT_TRUE(at::equal(flat_masters(alone.trainer), saved));
    while (alone.loader.position().epoch == 0) {
      alone.train_to(alone.done + 1);
    }
    seen.insert(seen.end(), alone.seen.begin(), alone.seen.end());
    std::sort(seen.begin(), seen.end());
    std::vector<int64_t> each(recipe.samples);
    std::iota(each.begin(), each.end(), int64_t{0});
    EXPECT_EQ(seen, each);
    alone.trainer.save();
    saved = flat_masters(alone.trainer);
  }
  meet();
  TrainingRun again(runtime(), recipe);
  EXPECT_TRUE(again.trainer.resume(folder.file("run")).resumed);
  EXPECT_TRUE(again.trainer.replicas_agree());
  EXPECT_EQ(again.loader.position().epoch, 1);
  if (runtime().is_main()) {
    EXPECT_TRUE(at::equal(flat_masters(again.trainer), saved));
  }
}

TEST(TrainerSnapshots, OneRankThatCannotGoOnIsAnErrorOnAllAndNothingIsLoaded) {
  const SharedFolder folder;
  Recipe recipe;
  recipe.options.precision(Precision::O2(at::kBFloat16).remainders())
      .ema(0.9)
      .shard_optimizer(true);
  {
    TrainingRun run(runtime(), recipe);
    run.trainer.resume(folder.file("run"));
    run.train_to(2);
    run.trainer.save();
  }
  const bool is_odd = runtime().rank() == runtime().size() - 1;
  recipe.samples += is_odd ? 1 : 0;
  recipe.compare_ranks = false;
  TrainingRun other(runtime(), recipe);
  const at::Tensor before = flat_masters(other.trainer);
  const std::string error = error_of([&] { other.trainer.resume(folder.file("run")); });
  EXPECT_THAT(error, AllOf(HasSubstr(c10::str(": rank ", runtime().size() - 1, ": ")),
                           HasSubstr("went over 43 samples, this one has 44")));
  EXPECT_TRUE(at::equal(flat_masters(other.trainer), before));
  EXPECT_EQ(other.trainer.updates(), 0);
  EXPECT_EQ(other.loader.position(), SamplerPosition());
}

TEST(TrainerSnapshots, FinishedRunEndsAtOnceWhenItIsStartedAgain) {
  const SharedFolder folder;
  const auto start = [&](int64_t epochs) {
    const auto model = std::make_shared<testing::Awkward>();
    Trainer trainer(runtime(), model, AdamW(1e-2));
    auto loader =
        runtime().loader(testing::Numbered{24}, LoaderOptions().batch_size(4).epochs(epochs));
    trainer.resume(folder.file("run"));
    const int64_t first_epoch = loader.epoch();
    int64_t steps = 0;
    for (auto& batch : loader) {
      const auto [x, y] = trainer.to_device(batch);
      trainer.step([&, x = x, y = y] { return model->loss(x, y); });
      ++steps;
    }
    trainer.save();
    return std::make_pair(first_epoch, steps / loader.batches_per_epoch());
  };
  using EpochAndEpochs = std::pair<int64_t, int64_t>;
  EXPECT_EQ(start(2), EpochAndEpochs(0, 2));
  EXPECT_EQ(start(2), EpochAndEpochs(1, 0));
  EXPECT_EQ(start(3), EpochAndEpochs(2, 1)) << "three epochs were asked for now";
}

TEST(TrainerSnapshots, LoopsOfOneEpochGoOnWithTheEpochAfterTheLastWhole) {
  const SharedFolder folder;
  std::vector<int64_t> epochs;
  for (const int64_t stop_before : {2, 4}) {
    const auto model = std::make_shared<testing::Awkward>();
    Trainer trainer(runtime(), model, AdamW(1e-2));
    auto loader = runtime().loader(testing::Numbered{24}, LoaderOptions().batch_size(12));
    trainer.resume(folder.file("run"));
    for (int64_t epoch = loader.epoch(); epoch < stop_before; ++epoch) {
      for (auto& batch : loader) {
        const auto [x, y] = trainer.to_device(batch);
        trainer.step([&, x = x, y = y] { return model->loss(x, y); });
        if (epochs.empty() || epochs.back() != loader.epoch()) {
          epochs.push_back(loader.epoch());
        }
      }
      trainer.save();
    }
  }
  EXPECT_THAT(epochs, ::testing::ElementsAre(0, 1, 2, 3));
}

TEST(TrainerSnapshots, MisuseIsNamedOnEveryRank) {
  const SharedFolder folder;
  TrainingRun run(runtime(), {});
  EXPECT_THAT(error_of([&] { run.trainer.save(); }), HasSubstr("no folder is known"));
  EXPECT_THAT(error_of([&] { run.trainer.resume(); }), HasSubstr("name the folder"));
  Recipe recipe;
  recipe.options.accumulate(2).snapshots(SnapshotOptions().folder(folder.file("run")));
  TrainingRun window(runtime(), recipe);
  window.train_to(1);
  EXPECT_THAT(error_of([&] { window.trainer.save(); }), HasSubstr("middle of a window"));
  EXPECT_THAT(error_of([&] { window.trainer.resume(); }), HasSubstr("middle of a window"));
  window.train_to(2);
  window.trainer.save();
  window.trainer.save();  // this update is saved already
  EXPECT_FALSE(window.trainer.finish_saving()->error.has_value());
}

TEST(TrainerSnapshots, FoldersOfResumeThatDifferBetweenRanksAreNamed) {
  const SharedFolder folder;
  for (const bool names_folder : {false, true}) {
    Recipe recipe;
    if (names_folder) {
      recipe.options.snapshots(SnapshotOptions().folder(folder.file("run")));
    }
    TrainingRun run(runtime(), recipe);
    const std::string mine = folder.file(runtime().is_main() ? "run" : "rum");
    EXPECT_THAT(error_of([&] { run.trainer.resume(mine); }),
                AllOf(HasSubstr("the options of resume() differ between ranks"),
                      HasSubstr(folder.file("run") + "\" on rank 0"),
                      HasSubstr(folder.file("rum") + "\" on rank")));
  }
}

TEST(TrainerSnapshots, AMetricThatIsNotFiniteIsLeftOutOfTheSnapshot) {
  const SharedFolder folder;
  Recipe recipe;
  recipe.options.snapshots(SnapshotOptions().folder(folder.file("run")).asynchronous(false));
  TrainingRun run(runtime(), recipe);
  for (const double metric : {0.5, std::nan(""), HUGE_VAL}) {
    run.train_to(run.done + 1);
    EXPECT_NO_THROW(run.trainer.save(metric));
  }
  EXPECT_EQ(Snapshot(step_path(folder.file("run"), 1)).manifest().metric, 0.5);
  for (const int64_t update : {2, 3}) {
    EXPECT_FALSE(Snapshot(step_path(folder.file("run"), update)).manifest().metric) << update;
  }
}

TEST(TrainerSnapshots, FolderOfAnotherRunIsRefusedBeforeTheFirstUpdate) {
  const SharedFolder folder;
  save_each(folder.file("run"), 1);
  Recipe recipe;
  recipe.options.snapshots(SnapshotOptions().folder(folder.file("run")));
  TrainingRun other(runtime(), recipe);
  EXPECT_THAT(error_of([&] { other.train_to(1); }), HasSubstr("snapshots of another run"));
  EXPECT_EQ(other.trainer.updates(), 0);
}

TEST(TrainerSnapshots, StopRequestEndsWithASnapshotAndExitCode75) {
  const SharedFolder folder;
  TrainingRun run(runtime(), {});
  run.trainer.resume(folder.file("run"));
  if (runtime().rank() == runtime().size() - 1) {
    run.trainer.request_stop();
  }
  run.train_to(1 + windows_late());
  ASSERT_TRUE(run.trainer.stop_requested());
  try {
    run.trainer.save_and_leave();
    FAIL() << "it came back";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preempted) << error.what();
  }
  EXPECT_NO_THROW(Snapshot(step_path(folder.file("run"), 1 + windows_late())).verify());
}

TEST(TrainerSnapshots, SavingAtOnceThrowsWhatWentWrong) {
  const SharedFolder folder;
  const auto disk = std::make_shared<FaultFileSystem>();
  const snapshot::FileSystemScope scope(disk);
  Recipe recipe;
  recipe.options.snapshots(SnapshotOptions().folder(folder.file("run")).asynchronous(false));
  TrainingRun run(runtime(), recipe);
  run.train_to(1);
  run.trainer.save();
  EXPECT_NO_THROW(Snapshot(step_path(folder.file("run"), 1)).verify());
  disk->fail_where([](FaultFileSystem::Call call,
                      const std::string&) { return call == FaultFileSystem::Call::sync; },
                   EIO);
  run.train_to(2);
  EXPECT_THAT(error_of([&] { run.trainer.save(); }), HasSubstr("Input/output error"));
  run.train_to(3);
  EXPECT_EQ(run.trainer.updates(), 3);
}

}  // namespace
}  // namespace lockstep
