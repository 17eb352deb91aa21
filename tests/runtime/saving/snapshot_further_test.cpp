// A save() of an update that is saved already, whose state has changed since.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/best_snapshot.h>

#include "checkpointing/snapshot_fault_file_system.h"
#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// "3" for the first snapshot of update 3, "3.1" for the next, as all ranks see them.
std::vector<std::string> snapshots_of(const std::string& folder) {
  meet();
  std::vector<std::string> names;
  for (const snapshot::SnapshotId& id : snapshot::ids_in(folder)) {
    names.push_back(std::to_string(id.step) +
                    (id.number > 0 ? "." + std::to_string(id.number) : ""));
  }
  meet();
  return names;
}

bool is_last_rank() {
  return runtime().rank() == runtime().size() - 1;
}

Recipe saving_to(const std::string& folder, bool asynchronous = false, KeepOptions keep = {}) {
  Recipe recipe;
  recipe.options.snapshots(
      SnapshotOptions().folder(folder).asynchronous(asynchronous).keep(std::move(keep)));
  return recipe;
}

/// A run whose loop has a variable of each kind.
struct LoopRun : TrainingRun {
  explicit LoopRun(Recipe recipe) : TrainingRun(runtime(), std::move(recipe)) {
    trainer.state("number", number);
    trainer.state("real", real);
    trainer.state("tensor", tensor);
  }
  int64_t number = 0;
  double real = 0.0;
  at::Tensor tensor;
};

TEST(FurtherSnapshots, AVariableThatChangedAfterASaveIsSavedByTheNext) {
  for (const bool asynchronous : {false, true}) {
    const SharedFolder folder;
    const std::string path = folder.file("run");
    {
      LoopRun run(saving_to(path, asynchronous));
      run.train_to(1);
      run.trainer.save(0.5);
      run.number = 7;
      run.trainer.save();
      run.real = 0.25;
      run.trainer.save();
      run.tensor = at::ones({2, 3});
      run.trainer.save();
      run.tensor = at::ones({3, 2});  // the same bytes
      run.trainer.save();
    }
    EXPECT_THAT(snapshots_of(path), ElementsAre("1.4"));
    LoopRun resumed(saving_to(path));
    const ResumeReport report = resumed.trainer.resume();
    EXPECT_THAT(report.path, EndsWith("step-000000000001.4"));
    EXPECT_THAT(report.notes, IsEmpty());
    EXPECT_EQ(resumed.number, 7);
    EXPECT_EQ(resumed.real, 0.25);
    EXPECT_EQ(resumed.tensor.sizes(), (std::vector<int64_t>{3, 2}));
    EXPECT_EQ(Snapshot(report.path).manifest().metric, 0.5) << "that of the same weights";
  }
}

TEST(FurtherSnapshots, AChangeOnOneRankAloneIsSavedByAll) {
  const SharedFolder folder;
  const std::string path = folder.file("run");
  {
    LoopRun run(saving_to(path));
    run.train_to(1);
    run.trainer.save();
    run.number = is_last_rank() ? 3 : 0;
    run.trainer.save();
    run.trainer.save();  // nothing changed
  }
  EXPECT_THAT(snapshots_of(path), ElementsAre("1.1"));
  LoopRun resumed(saving_to(path));
  resumed.trainer.resume();
  EXPECT_EQ(resumed.number, is_last_rank() ? 3 : 0);
}

/// Two updates, after each of which it saves, draws random numbers on the last rank, as a sample of
/// text does, and, if `stops`, leaves.
void train_and_sample(TrainingRun& run, bool stops) {
  while (run.done < 2) {
    run.train_to(run.done + 1);
    run.trainer.save(1.0);
    if (is_last_rank()) {
      at::rand({3});
    }
    if (stops) {
      run.trainer.save_and_leave();
    }
  }
}

TEST(FurtherSnapshots, ARunThatLeavesAfterDrawingRandomNumbersGoesOnAsTheWholeRun) {
  for (const bool asynchronous : {false, true}) {
    const SharedFolder folder;
    TrainingRun whole(runtime(), saving_to(folder.file("whole"), asynchronous));
    train_and_sample(whole, /*stops=*/false);
    whole.train_to(4);
    for (int start = 0; start < 2; ++start) {
      TrainingRun part(runtime(), saving_to(folder.file("parts"), asynchronous));
      part.done = part.trainer.resume().update;
      EXPECT_EQ(part.done, start);
      EXPECT_THAT(error_of([&] { train_and_sample(part, /*stops=*/true); }), HasSubstr("stop"));
    }
    TrainingRun last(runtime(), saving_to(folder.file("parts")));
    EXPECT_EQ(last.trainer.resume().update, 2);
    last.done = 2;
    last.train_to(4);
    EXPECT_TRUE(at::equal(flat_masters(last.trainer), flat_masters(whole.trainer)));
  }
}

TEST(FurtherSnapshots, ASaveWithoutAChangeWritesNothingAlsoAfterResuming) {
  for (const bool sharded : {false, true}) {
    const SharedFolder folder;
    const std::string path = folder.file("run");
    Recipe recipe = saving_to(path);
    recipe.options.precision(testing::half_precision()).ema(0.9).shard_optimizer(sharded);
    {
      LoopRun run(recipe);
      run.train_to(2);
      run.trainer.save();
      run.trainer.save();
      run.trainer.save(0.5);
    }
    EXPECT_THAT(snapshots_of(path), ElementsAre("2"));
    EXPECT_EQ(Snapshot(step_path(path, 2)).manifest().metric, 0.5);
    LoopRun resumed(recipe);
    resumed.trainer.resume();
    resumed.trainer.save();
    resumed.trainer.save(0.25);
    EXPECT_THAT(snapshots_of(path), ElementsAre("2"));
    EXPECT_EQ(Snapshot(step_path(path, 2)).manifest().metric, 0.25);
    resumed.number = 1;
    resumed.trainer.save();
    EXPECT_THAT(snapshots_of(path), ElementsAre("2", "2.1")) << "2 is what it resumed from";
    EXPECT_EQ(Snapshot(path + "/step-000000000002.1").manifest().metric, 0.25);
  }
}

TEST(FurtherSnapshots, ASkippedUpdateIsAChange) {
  const SharedFolder folder;
  Recipe recipe = saving_to(folder.file("run"));
  recipe.options.precision(testing::half_precision());
  recipe.overflows = [](int64_t micro_batch) { return micro_batch == 1; };
  auto run = std::make_unique<TrainingRun>(runtime(), recipe);
  run->train_to(1);
  run->trainer.save();
  run->train_to(2);  // skipped: only random numbers, the loss scale and the data are further on
  ASSERT_EQ(run->trainer.updates(), 1);
  run->trainer.save();
  run->train_to(4);
  const at::Tensor expected = flat_masters(run->trainer);
  run.reset();
  TrainingRun resumed(runtime(), recipe);
  EXPECT_EQ(resumed.trainer.resume().update, 1);
  resumed.done = 2;
  resumed.train_to(4);
  EXPECT_TRUE(at::equal(flat_masters(resumed.trainer), expected));
}

TEST(FurtherSnapshots, BuffersAndFrozenWeightsCountToo) {
  const SharedFolder folder;
  TrainingRun run(runtime(), saving_to(folder.file("run")));
  run.train_to(1);
  run.trainer.save();
  {
    const at::NoGradGuard no_grad;
    run.model->norm->running_mean.add_(1);
    run.trainer.save();
    run.model->frozen.mul_(2);
    run.trainer.save();
  }
  EXPECT_THAT(snapshots_of(folder.file("run")), ElementsAre("1.2"));
  TrainingRun resumed(runtime(), saving_to(folder.file("run")));
  resumed.trainer.resume();
  EXPECT_TRUE(at::equal(resumed.model->norm->running_mean, run.model->norm->running_mean));
  EXPECT_TRUE(at::equal(resumed.model->frozen, run.model->frozen));
}

TEST(FurtherSnapshots, OtherWeightsOfTheSameUpdateAreSavedWithoutTheMetricOfTheEarlierOnes) {
  const SharedFolder folder;
  save_each(folder.file("other"), 2);
  for (const bool adopts : {true, false}) {
    const std::string path = folder.file(adopts ? "adopts" : "loads");
    const KeepOptions keep = KeepOptions().last(1);
    TrainingRun run(runtime(), saving_to(path, false, keep));
    run.train_to(1);
    run.trainer.save(0.5);
    if (adopts) {
      const at::NoGradGuard no_grad;
      run.model->first->weight.mul_(2);
      run.trainer.adopt_weights();
    } else {
      run.trainer.load_weights(step_path(folder.file("other"), 2));
    }
    run.trainer.save();
    EXPECT_THAT(snapshots_of(path), ElementsAre("1", "1.1")) << "1 is the best";
    EXPECT_FALSE(Snapshot(path + "/step-000000000001.1").manifest().metric);
    EXPECT_THAT(best_snapshot(path), EndsWith("step-000000000001"));
    TrainingRun resumed(runtime(), saving_to(path, false, keep));
    EXPECT_THAT(resumed.trainer.resume().path, EndsWith("step-000000000001.1"));
    EXPECT_TRUE(at::equal(flat_masters(resumed.trainer), flat_masters(run.trainer)));
    resumed.train_to(1);
    resumed.trainer.save(0.25);
    EXPECT_THAT(snapshots_of(path), ElementsAre("1.1", "2"));
  }
}

TEST(FurtherSnapshots, RetentionCountsThoseOfAnUpdateAsOne) {
  const SharedFolder folder;
  const std::string path = folder.file("run");
  LoopRun run(saving_to(path, false, KeepOptions().last(2).best(1)));
  for (int64_t update = 1; update <= 5; ++update) {
    run.train_to(update);
    run.trainer.save(update == 2 ? 0.5 : 1.0);
    for (int again = 0; again < 2; ++again) {
      ++run.number;
      run.trainer.save();
    }
  }
  EXPECT_THAT(snapshots_of(path), ElementsAre("2.2", "4.2", "5.2"));
  EXPECT_THAT(best_snapshot(path), EndsWith("step-000000000002.2"));
}

TEST(FurtherSnapshots, MoreThanTenOfAnUpdateAreInOrder) {
  const SharedFolder folder;
  const std::string path = folder.file("run");
  LoopRun run(saving_to(path));
  run.train_to(1);
  for (; run.number < 12; ++run.number) {
    run.trainer.save();
  }
  LoopRun resumed(saving_to(path));
  EXPECT_THAT(resumed.trainer.resume().path, EndsWith("step-000000000001.11"));
  EXPECT_EQ(resumed.number, 11);
}

TEST(FurtherSnapshots, ARunTakenBackToTheEarlierOneSetsTheFurtherAside) {
  const SharedFolder folder;
  const std::string path = folder.file("run");
  save_each(path, 1);
  {
    LoopRun run(saving_to(path));
    run.trainer.resume();
    run.number = 1;
    run.trainer.save();
  }
  ASSERT_THAT(snapshots_of(path), ElementsAre("1", "1.1"));
  {
    LoopRun back(saving_to(path));
    EXPECT_EQ(back.trainer.resume(step_path(path, 1)).update, 1);
    EXPECT_THAT(snapshots_of(path), ElementsAre("1"));
    back.number = 2;
    back.trainer.save();
  }
  EXPECT_THAT(snapshot::names_in(path), ::testing::Contains("step-000000000001.1.aside"));
  LoopRun resumed(saving_to(path));
  resumed.trainer.resume();
  EXPECT_EQ(resumed.number, 2);
}

TEST(FurtherSnapshots, OneThatFailsLeavesTheEarlierAndTheNextSaveTriesAgain) {
  for (const bool asynchronous : {false, true}) {
    const SharedFolder folder;
    const std::string path = folder.file("run");
    const auto disk = std::make_shared<FaultFileSystem>();
    const snapshot::FileSystemScope scope(disk);
    LoopRun run(saving_to(path, asynchronous));
    run.train_to(1);
    run.trainer.save(0.5);
    run.trainer.finish_saving();
    for (const auto failing : {FaultFileSystem::Call::write, FaultFileSystem::Call::sync_folder}) {
      run.number += 1;
      disk->fail_where([&](auto call, const std::string&) { return call == failing; }, ENOSPC);
      try {
        run.trainer.save();
      } catch (const Error&) {
        EXPECT_FALSE(asynchronous);
      }
      run.trainer.finish_saving();
      disk->heal();
      LoopRun resumed(Recipe{});
      EXPECT_EQ(Snapshot(resumed.trainer.resume(path).path).manifest().metric, 0.5);
    }
    run.number = 5;
    run.trainer.save();
    EXPECT_FALSE(run.trainer.finish_saving()->error.has_value());
    LoopRun resumed(Recipe{});
    EXPECT_EQ(Snapshot(resumed.trainer.resume(path).path).manifest().metric, 0.5);
    EXPECT_EQ(resumed.number, 5);
  }
}

TEST(FurtherSnapshots, TheFurtherOneGoesOnOnAnotherNumberOfRanks) {
  const SharedFolder folder;
  const std::string path = folder.file("run");
  {
    LoopRun run(saving_to(path));
    run.train_to(1);
    run.trainer.save();
    run.number = 4;
    run.trainer.save();
  }
  meet();
  if (runtime().is_main()) {
    Runtime solo = testing::solo_runtime();
    TrainingRun alone(solo, Recipe{});
    int64_t number = 0;
    alone.trainer.state("number", number);
    EXPECT_THAT(alone.trainer.resume(path).path, EndsWith("step-000000000001.1"));
    EXPECT_EQ(number, 4);
    number = 5;
    alone.trainer.save();
  }
  LoopRun resumed(saving_to(path));
  EXPECT_TRUE((meet(), resumed.trainer.resume().resumed));
  EXPECT_EQ(resumed.number, 5);
}

TEST(FurtherSnapshots, OneOnTheDiskIsTakenBeforeThatInMemoryOfTheSameUpdate) {
  const SharedFolder folder;
  const std::string path = folder.file("run");
  const SharedFolder memory;
  Recipe recipe;
  recipe.options.snapshots(
      SnapshotOptions().folder(path).memory_every(1).memory_folder(memory.file("memory")));
  const auto run = std::make_unique<LoopRun>(recipe);
  run->train_to(2);
  run->trainer.save();
  run->number = 6;
  run->trainer.save();
  run->trainer.finish_saving();
  meet();
  LoopRun resumed(recipe);
  const ResumeReport report = resumed.trainer.resume();
  EXPECT_THAT(report.path, EndsWith("/run/step-000000000002.1"));
  EXPECT_EQ(resumed.number, 6);
}

}  // namespace
}  // namespace lockstep
