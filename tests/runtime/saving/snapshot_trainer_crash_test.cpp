// The disk of a rank dies or fills up while a Trainer saves on two ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>

#include <set>

#include "checkpointing/snapshot_fault_file_system.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

struct Way {
  bool asynchronous;
  bool sharded;
};

Recipe recipe_of(const Way& way) {
  Recipe recipe;
  recipe.options.precision(testing::half_precision()).ema(0.9).shard_optimizer(way.sharded);
  return recipe;
}

/// Goes on from update 2 and saves 3, on a disk of the victim that dies at this call. Returns
/// whether it had fewer calls to make.
bool run_with_crash(const Way& way, int victim, int call, const std::string& folder) {
  const auto disk = std::make_shared<FaultFileSystem>();
  const snapshot::FileSystemScope scope(disk);
  Recipe recipe = recipe_of(way);
  recipe.options.snapshots(SnapshotOptions()
                               .asynchronous(way.asynchronous)
                               .min_shard_bytes(1)
                               .keep(KeepOptions().last(1)));
  TrainingRun run(runtime(), recipe);
  run.done = run.trainer.resume(folder).update;
  disk->heal();
  if (runtime().rank() == victim) {
    disk->die_at(call);
  }
  run.train_to(3);
  try {
    run.trainer.save();
  } catch (const Error&) {
    // It could not be saved, or not even the folder be tidied up: said on every rank.
  }
  run.trainer.finish_saving();
  const std::string mine = disk->calls() < call ? "y" : "n";
  Communicator control = runtime().control();
  return control.all_gather_bytes(mine)[static_cast<size_t>(victim)] == "y";
}

/// Kills the disk of one rank at each single call that these saves make, and goes on from what is
/// left. Returns how many calls there were.
int64_t crash_at_every_call(const Way& way, int victim, const std::string& saved,
                            const at::Tensor& expected) {
  for (int call = 1;; ++call) {
    SCOPED_TRACE(c10::str("rank ", victim, " dies at call ", call));
    const SharedFolder folder;
    if (runtime().is_main()) {
      testing::link_run(saved, folder.file("run"));
    }
    const bool all_calls_done = run_with_crash(way, victim, call, folder.file("run"));
    TrainingRun resumed(runtime(), recipe_of(way));
    const ResumeReport report = resumed.trainer.resume(folder.file("run"));
    EXPECT_TRUE(report.resumed);
    EXPECT_GE(report.update, all_calls_done ? 3 : 2);
    resumed.done = report.update;
    resumed.train_to(4);
    EXPECT_TRUE(at::equal(flat_masters(resumed.trainer), expected));
    if (all_calls_done || ::testing::Test::HasFailure()) {
      return call - 1;
    }
  }
}

/// Saves update 2 of an unbroken run; returns its masters after update 4.
at::Tensor save_second_of_four(const Way& way, const std::string& folder) {
  TrainingRun unbroken(runtime(), recipe_of(way));
  unbroken.trainer.resume(folder);
  unbroken.train_to(2);
  unbroken.trainer.save();
  unbroken.train_to(4);
  unbroken.trainer.finish_saving();
  return flat_masters(unbroken.trainer);
}

TEST(CrashedSaves, KilledAtEveryCallTheResumedRunEndsBitEqual) {
  int64_t points = 0;
  for (int victim = 0; victim < runtime().size(); ++victim) {
    const Way way = {/*asynchronous=*/victim == 0, /*sharded=*/victim == 1};
    const SharedFolder folder;
    const at::Tensor expected = save_second_of_four(way, folder.file("run"));
    points += crash_at_every_call(way, victim, folder.file("run"), expected);
  }
  EXPECT_GT(points, 120);
}

/// Saves update 3 and, after drawing a random number, once more, on a disk of the victim that dies
/// at this call of the second save. Returns whether it had fewer calls to make.
bool save_again_with_crash(bool asynchronous, int victim, int call, const std::string& folder) {
  const auto disk = std::make_shared<FaultFileSystem>();
  const snapshot::FileSystemScope scope(disk);
  Recipe recipe;
  recipe.options.snapshots(SnapshotOptions()
                               .folder(folder)
                               .asynchronous(asynchronous)
                               .min_shard_bytes(1)
                               .keep(KeepOptions().last(1)));
  TrainingRun run(runtime(), recipe);
  int64_t draws = 0;
  run.trainer.state("draws", draws);
  run.train_to(3);
  run.trainer.save(0.5);
  run.trainer.finish_saving();
  disk->heal();
  if (runtime().rank() == victim) {
    disk->die_at(call);
  }
  at::rand({1});
  draws = 1;
  try {
    run.trainer.save();
  } catch (const Error&) {
    // Said on every rank.
  }
  run.trainer.finish_saving();
  const std::string mine = disk->calls() < call ? "y" : "n";
  Communicator control = runtime().control();
  return control.all_gather_bytes(mine)[static_cast<size_t>(victim)] == "y";
}

/// The masters after update 4 of a run that draws so many random numbers after update 3.
at::Tensor masters_after(int64_t draws) {
  TrainingRun whole(runtime(), {});
  whole.train_to(3);
  for (int64_t draw = 0; draw < draws; ++draw) {
    at::rand({1});
  }
  whole.train_to(4);
  return flat_masters(whole.trainer);
}

TEST(FurtherSnapshots, KilledAtEveryCallARunGoesOnFromOneOfThoseOfTheUpdate) {
  const std::vector<at::Tensor> expected = {masters_after(0), masters_after(1)};
  std::set<int64_t> found;
  for (int victim = 0; victim < runtime().size(); ++victim) {
    const bool asynchronous = victim == 0;
    bool all_calls_done = false;
    for (int call = 1; !all_calls_done && !HasFailure(); ++call) {
      SCOPED_TRACE(c10::str("rank ", victim, " dies at call ", call));
      const SharedFolder folder;
      all_calls_done = save_again_with_crash(asynchronous, victim, call, folder.file("run"));
      TrainingRun resumed(runtime(), {});
      int64_t draws = 0;
      resumed.trainer.state("draws", draws);
      const ResumeReport report = resumed.trainer.resume(folder.file("run"));
      EXPECT_EQ(report.update, 3);
      EXPECT_EQ(Snapshot(report.path).manifest().metric, 0.5);
      EXPECT_TRUE(draws == 1 || !all_calls_done);
      resumed.done = 3;
      resumed.train_to(4);
      EXPECT_TRUE(
          at::equal(flat_masters(resumed.trainer), expected.at(static_cast<size_t>(draws))));
      found.insert(draws);
    }
  }
  EXPECT_EQ(found, (std::set<int64_t>{0, 1}));
}

TEST(CrashedSaves, FullDiskOfOneRankIsToldToAllAtALaterStepAndTrainingGoesOn) {
  const SharedFolder folder;
  const auto disk = std::make_shared<FaultFileSystem>();
  const snapshot::FileSystemScope scope(disk);
  const Recipe recipe;
  TrainingRun run(runtime(), recipe);
  run.trainer.resume(folder.file("run"));
  run.train_to(1);
  run.trainer.save();
  EXPECT_FALSE(run.trainer.finish_saving()->error.has_value());
  if (runtime().rank() == runtime().size() - 1) {
    disk->fail_where([](FaultFileSystem::Call call,
                        const std::string&) { return call == FaultFileSystem::Call::write; },
                     ENOSPC);
  }
  run.train_to(2);
  run.trainer.save();
  std::optional<std::string> error;
  int64_t steps = 0;
  for (auto batch = run.loader.begin(); !error && ++steps < 10000; ++batch) {
    const StepReport report =
        run.trainer.step([&] { return run.model->loss(batch->first, batch->second); });
    if (report.saved() != nullptr) {
      error = report.saved()->error;
    }
  }
  ASSERT_TRUE(error.has_value());
  EXPECT_THAT(*error, AllOf(HasSubstr("No space left on device"),
                            HasSubstr(c10::str("rank ", runtime().size() - 1))));
  EXPECT_TRUE(testing::equal_on_all_ranks(flat_masters(run.trainer)));
  disk->heal();
  run.trainer.save();
  EXPECT_FALSE(run.trainer.finish_saving()->error.has_value());
  TrainingRun after(runtime(), {});
  EXPECT_EQ(after.trainer.resume(folder.file("run")).update, run.trainer.updates());
}

}  // namespace
}  // namespace lockstep
