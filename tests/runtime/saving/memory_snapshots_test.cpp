// A Trainer that also saves in the memory of its node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"
#include "working_directory.h"

namespace lockstep {
namespace {

/// Saves in memory after each third update.
Recipe saving_in_memory(const SharedFolder& folder) {
  if (runtime().is_main()) {
    std::filesystem::create_directories(folder.file("memory"));
  }
  meet();
  Recipe recipe;
  recipe.options.snapshots(SnapshotOptions()
                               .folder(folder.file("run"))
                               .memory_every(3)
                               .memory_folder(folder.file("memory")));
  return recipe;
}

struct Death : std::runtime_error {
  Death() : std::runtime_error("a rank was killed") {}
};

/// A run that is killed after so many micro-batches: its Trainer is left by an exception, so that
/// nothing is tidied up. `meanwhile` runs before that.
void train_and_die(const Recipe& recipe, int64_t micro_batches,
                   const std::function<void(TrainingRun&)>& meanwhile = {}) {
  try {
    TrainingRun run(runtime(), recipe);
    run.done = run.trainer.resume().update;
    run.train_to(micro_batches);
    run.trainer.finish_saving();  // what is pending reaches the memory
    if (meanwhile) {
      meanwhile(run);
    }
    throw Death();
  } catch (const Death&) {
    meet();
  }
}

std::vector<std::string> folders_in_memory(const SharedFolder& folder) {
  meet();
  std::vector<std::string> names;
  for (const std::string& name : snapshot::names_in(folder.file("memory"))) {
    for (const std::string& run : snapshot::names_in(folder.file("memory") + "/" + name)) {
      names.push_back(folder.file("memory") + "/" + name + "/" + run);
    }
  }
  return names;
}

TEST(MemorySnapshots, ARunThatDiedGoesOnFromMemoryBitForBit) {
  TrainingRun whole(runtime(), {});
  whole.train_to(20);
  const SharedFolder folder;
  train_and_die(saving_in_memory(folder), 11);
  TrainingRun run(runtime(), saving_in_memory(folder));
  const ResumeReport report = run.trainer.resume();
  ASSERT_TRUE(report.resumed);
  EXPECT_EQ(report.update, 9);
  EXPECT_THAT(report.path, HasSubstr(folder.file("memory")));
  run.done = report.update;
  run.train_to(20);
  EXPECT_TRUE(flat_masters(run.trainer).equal(flat_masters(whole.trainer)));
  EXPECT_EQ(run.losses, std::vector<double>(whole.losses.begin() + 9, whole.losses.end()));
}

TEST(MemorySnapshots, ANewerOneOnTheDiskIsTakenAndEmptiesTheMemory) {
  const SharedFolder folder;
  train_and_die(saving_in_memory(folder), 10, [](TrainingRun& run) {
    run.trainer.save();
    EXPECT_FALSE(run.trainer.finish_saving()->error);
  });
  for (const std::string& node : folders_in_memory(folder)) {
    EXPECT_THAT(snapshot::names_in(node), ::testing::Not(Contains(HasSubstr("step-"))));
  }
  TrainingRun run(runtime(), saving_in_memory(folder));
  const ResumeReport report = run.trainer.resume();
  EXPECT_EQ(report.update, 10);
  EXPECT_THAT(report.path, HasSubstr(folder.file("run")));
}

TEST(MemorySnapshots, ASkippedUpdateChangesNothing) {
  const SharedFolder folder;
  Recipe recipe = saving_in_memory(folder);
  recipe.options.snapshots(SnapshotOptions(recipe.options.snapshots()).memory_every(1));
  recipe.overflows = [](int64_t micro_batch) { return micro_batch == 4 || micro_batch == 5; };
  ::testing::internal::CaptureStderr();
  train_and_die(recipe, 7);
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("on the disk only"), std::string::npos);
  TrainingRun run(runtime(), recipe);
  EXPECT_EQ(run.trainer.resume().update, 5);
}

TEST(MemorySnapshots, TheUpdateThatARunGoesOnFromReachesTheDisk) {
  const SharedFolder folder;
  train_and_die(saving_in_memory(folder), 9);
  {
    TrainingRun run(runtime(), saving_in_memory(folder));
    EXPECT_EQ(run.trainer.resume().update, 9);
    run.trainer.save();
  }
  EXPECT_THAT(folders_in_memory(folder), IsEmpty());
  TrainingRun run(runtime(), saving_in_memory(folder));
  const ResumeReport report = run.trainer.resume();
  EXPECT_EQ(report.update, 9);
  EXPECT_THAT(report.path, HasSubstr(folder.file("run")));
}

TEST(MemorySnapshots, ARunThatWentOnFromTheDiskDoesNotReturnToThem) {
  const SharedFolder folder;
  const auto save = [](TrainingRun& run) {
    run.trainer.save();
    EXPECT_FALSE(run.trainer.finish_saving()->error);
  };
  train_and_die(saving_in_memory(folder), 2, save);
  train_and_die(saving_in_memory(folder), 9);  // in memory: 8
  Recipe without = saving_in_memory(folder);
  without.options.snapshots(SnapshotOptions(without.options.snapshots()).memory_every(0));
  train_and_die(without, 4, save);
  TrainingRun run(runtime(), saving_in_memory(folder));
  EXPECT_EQ(run.trainer.resume().update, 4);
}

TEST(MemorySnapshots, ATrainerThatOnlyReadsLeavesThemAlone) {
  const SharedFolder folder;
  train_and_die(saving_in_memory(folder), 9);
  { const TrainingRun other(runtime(), saving_in_memory(folder)); }
  TrainingRun run(runtime(), saving_in_memory(folder));
  EXPECT_EQ(run.trainer.resume().update, 9);
}

TEST(MemorySnapshots, ADamagedOneIsSaidAndTheDiskIsUsed) {
  const SharedFolder folder;
  train_and_die(saving_in_memory(folder), 2, [](TrainingRun& run) {
    run.trainer.save();
    EXPECT_FALSE(run.trainer.finish_saving()->error);
  });
  train_and_die(saving_in_memory(folder), 9);
  const auto nodes = folders_in_memory(folder);
  ASSERT_EQ(nodes.size(), 1U);
  // The one before it is kept, since nodes complete theirs one after another.
  for (const auto& [damaged, resumed] :
       {std::pair("step-000000000008", 5), std::pair("step-000000000005", 2)}) {
    if (runtime().is_main()) {
      std::ofstream(nodes[0] + "/" + damaged + "/manifest.json", std::ios::app) << "damage";
    }
    meet();
    try {
      TrainingRun run(runtime(), saving_in_memory(folder));
      const ResumeReport report = run.trainer.resume();
      EXPECT_EQ(report.update, resumed);
      EXPECT_THAT(report.notes, Contains(HasSubstr(damaged)));
      throw Death();  // nothing is tidied up
    } catch (const Death&) {
      meet();
    }
  }
}

TEST(MemorySnapshots, AnEmptiedRunFolderStartsFromTheBeginning) {
  const SharedFolder folder;
  train_and_die(saving_in_memory(folder), 9);
  meet();
  if (runtime().is_main()) {
    std::filesystem::remove_all(folder.file("run"));
  }
  meet();
  TrainingRun run(runtime(), saving_in_memory(folder));
  EXPECT_FALSE(run.trainer.resume().resumed);
}

TEST(MemorySnapshots, ARunThatEndsLeavesNothingInMemory) {
  const SharedFolder folder;
  {
    TrainingRun run(runtime(), saving_in_memory(folder));
    run.train_to(10);
  }
  EXPECT_THAT(folders_in_memory(folder), IsEmpty());
}

/// A rank was killed while it wrote a snapshot in memory.
void leave_a_half_written_one(const SharedFolder& folder) {
  for (const std::string& node : folders_in_memory(folder)) {
    if (runtime().is_main()) {
      std::filesystem::create_directories(node + "/step-000000000090.some-run.tmp");
      std::ofstream(node + "/step-000000000090.some-run.tmp/file") << "half";
    }
  }
  meet();
}

TEST(MemorySnapshots, ARunThatWentOnFromMemoryAndEndsBeforeTheNextLeavesNothing) {
  const SharedFolder folder;
  train_and_die(saving_in_memory(folder), 9);
  leave_a_half_written_one(folder);
  {
    TrainingRun run(runtime(), saving_in_memory(folder));
    EXPECT_EQ(run.trainer.resume().update, 9);
  }
  EXPECT_THAT(folders_in_memory(folder), IsEmpty());
}

TEST(MemorySnapshots, ARunThatWentOnFromTheDiskAndEndsBeforeTheNextLeavesNothing) {
  const SharedFolder folder;
  train_and_die(saving_in_memory(folder), 10, [](TrainingRun& run) {
    run.trainer.save();
    EXPECT_FALSE(run.trainer.finish_saving()->error);
  });
  leave_a_half_written_one(folder);
  {
    TrainingRun run(runtime(), saving_in_memory(folder));
    EXPECT_EQ(run.trainer.resume().update, 10);
  }
  EXPECT_THAT(folders_in_memory(folder), IsEmpty());
}

TEST(MemorySnapshots, AMemoryThatCannotBeUsedEndsThemAndNotTheRun) {
  const SharedFolder folder;
  Recipe recipe = saving_in_memory(folder);
  if (runtime().is_main()) {
    std::ofstream(folder.file("file")) << "no folder";
  }
  meet();
  recipe.options.snapshots(
      SnapshotOptions(recipe.options.snapshots()).memory_folder(folder.file("file")));
  TrainingRun run(runtime(), recipe);
  ::testing::internal::CaptureStderr();
  run.train_to(7);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("on the disk only") != std::string::npos, runtime().is_main()) << said;
  run.trainer.save();
  EXPECT_FALSE(run.trainer.finish_saving()->error);
}

/// Somebody has made the folder first, with what looks like a newer snapshot.
void plant(const SharedFolder& folder) {
  meet();
  if (runtime().is_main()) {
    const std::string planted =
        folder.file("memory") + "/lockstep.memory-" + std::to_string(geteuid());
    std::filesystem::create_directories(planted);
    std::ofstream(planted + "/decoy") << "stays";
    std::filesystem::permissions(planted, std::filesystem::perms::all);
  }
  meet();
}

size_t times(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(MemorySnapshots, AMemoryOfSomebodyElseIsSaidOnceAndTheDiskIsUsed) {
  const SharedFolder folder;
  Recipe recipe = saving_in_memory(folder);
  plant(folder);
  for (const bool has_resumed : {false, true}) {
    ::testing::internal::CaptureStderr();
    {
      TrainingRun run(runtime(), recipe);
      run.done = run.trainer.resume().update;
      EXPECT_EQ(run.done, has_resumed ? 7 : 0);
      run.train_to(run.done + 7);
      run.trainer.save();
      EXPECT_FALSE(run.trainer.finish_saving()->error);
    }
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(times(said, "lockstep.memory-"), runtime().is_main() ? 1U : 0U) << said;
    EXPECT_EQ(times(said, "on the disk only"), runtime().is_main() ? 1U : 0U) << said;
  }
  EXPECT_THAT(folders_in_memory(folder), ElementsAre(HasSubstr("/decoy")));
}

TEST(MemorySnapshots, AMemoryThatWasWidenedIsSaidByTheRunThatGoesOnFromTheDisk) {
  const SharedFolder folder;
  train_and_die(saving_in_memory(folder), 2, [](TrainingRun& run) {
    run.trainer.save();
    EXPECT_FALSE(run.trainer.finish_saving()->error);
  });
  train_and_die(saving_in_memory(folder), 9);
  plant(folder);
  TrainingRun run(runtime(), saving_in_memory(folder));
  const ResumeReport report = run.trainer.resume();
  EXPECT_EQ(report.update, 2);
  EXPECT_THAT(report.notes, Contains(HasSubstr("lockstep.memory-")));
}

TEST(MemorySnapshots, ARelativeFolderStaysWhereItWasWhenTheTrainerWasMade) {
  const SharedFolder folder;
  saving_in_memory(folder);
  const testing::WorkingDirectory start(folder.file(""));
  Recipe recipe;
  recipe.options.snapshots(SnapshotOptions().folder("run").memory_every(3).memory_folder("memory"));
  ::testing::internal::CaptureStderr();
  {
    TrainingRun run(runtime(), recipe);
    const testing::WorkingDirectory elsewhere("elsewhere");
    run.train_to(10);
    EXPECT_THAT(folders_in_memory(folder), ::testing::SizeIs(1));
    run.trainer.save();
    EXPECT_FALSE(run.trainer.finish_saving()->error);
    EXPECT_EQ(run.trainer.resume().update, 10);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(snapshot::names_in(folder.file("elsewhere")), IsEmpty());
}

TEST(MemorySnapshots, ANegativeNumberIsRefused) {
  const SharedFolder folder;
  Recipe recipe = saving_in_memory(folder);
  recipe.options.snapshots(SnapshotOptions(recipe.options.snapshots()).memory_every(-1));
  EXPECT_THAT(error_of([&] { TrainingRun run(runtime(), recipe); }), HasSubstr("memory_every"));
}

}  // namespace
}  // namespace lockstep
