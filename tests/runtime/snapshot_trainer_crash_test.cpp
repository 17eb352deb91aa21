// The disk of a rank dies or fills up while a Trainer saves on two ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpointing/snapshot_fault_file_system.h"
#include "snapshot_runs.h"
#include "trainer_runs.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::FaultFileSystem;
using testing::flat_masters;
using ::testing::HasSubstr;
using testing::Recipe;
using testing::runtime;
using testing::SharedFolder;
using testing::TrainingRun;

/// Kills the disk of one rank at each single call that saving update 3 makes, asynchronously, and
/// goes on from what is left. Returns how many calls there were.
int64_t crash_at_every_call(int victim, const at::Tensor& expected) {
  for (int call = 1;; ++call) {
    SCOPED_TRACE(c10::str("rank ", victim, " dies at call ", call));
    const SharedFolder folder;
    const auto disk = std::make_shared<FaultFileSystem>();
    Recipe recipe;
    recipe.options.snapshots(SnapshotOptions().files(disk).keep(KeepOptions().last(1)));
    bool all_calls_done = false;
    {
      TrainingRun run(runtime(), recipe);
      run.trainer.resume(folder.file("run"));
      run.train_to(2);
      run.trainer.save();
      run.trainer.finish_saving();
      disk->crash(FaultFileSystem::Loss::nothing);
      if (runtime().rank() == victim) {
        disk->die_at(call);
      }
      run.train_to(3);
      try {
        run.trainer.save();
      } catch (const Error&) {
        // The folder could not even be tidied up: said on every rank.
      }
      run.train_to(5);
      run.trainer.finish_saving();
      all_calls_done = disk->calls() < call;
    }
    Communicator control = runtime().control();
    all_calls_done = control.all_gather_bytes(all_calls_done ? "y" : "n")[victim] == "y";
    TrainingRun resumed(runtime(), {});
    const ResumeReport report = resumed.trainer.resume(folder.file("run"));
    EXPECT_TRUE(report.resumed);
    EXPECT_GE(report.update, 2);
    resumed.done = report.update;
    resumed.train_to(5);
    EXPECT_TRUE(at::equal(flat_masters(resumed.trainer), expected));
    if (all_calls_done || ::testing::Test::HasFailure()) {
      return call - 1;
    }
  }
}

TEST(SnapshotFacts, N01_KilledAtEveryCallTheResumedRunEndsBitEqual) {
  TrainingRun unbroken(runtime(), {});
  unbroken.train_to(5);
  const at::Tensor expected = flat_masters(unbroken.trainer);
  for (int victim = 0; victim < runtime().size(); ++victim) {
    EXPECT_GT(crash_at_every_call(victim, expected), victim == 0 ? 30 : 5);
  }
}

TEST(SnapshotFacts, N02_FullDiskOfOneRankIsToldToAllAtALaterStepAndTrainingGoesOn) {
  const SharedFolder folder;
  const auto disk = std::make_shared<FaultFileSystem>();
  Recipe recipe;
  recipe.options.snapshots(SnapshotOptions().files(disk));
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
