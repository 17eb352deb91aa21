// Snapshots in memory that are forgotten, or that belong to an old line of the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/folder_lock.h>
#include <lockstep/checkpointing/snapshot/impl/memory_snapshots.h>
#include <lockstep/collectives/exceptions.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpointing/snapshot_fault_file_system.h"
#include "memory_nodes.h"
#include "test_names.h"

namespace lockstep {
namespace {

using snapshot::MemorySnapshots;

/// The names of this process's open files.
std::vector<std::string> open_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    names.push_back(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  return names;
}

TEST(MemoryLines, ASnapshotForgottenWhileItsFilesAreCopiedLeavesNothingAndTheNextIsWhole) {
  const Nodes nodes(apart());
  MemorySnapshots snapshots = nodes.snapshots();
  snapshots.open("run-a", 0, /*min_shard_bytes=*/1);
  nodes.begin_save(snapshots, 5);
  for (int taken = 0; taken < 4; ++taken) {  // written, completed, two chunks
    EXPECT_FALSE(snapshots.advance());
  }
  EXPECT_THAT(open_files(), Contains(HasSubstr("step-000000000005")));
  nodes.ranks.barrier().wait();
  snapshots.forget(0, 5);
  EXPECT_FALSE(snapshots.is_pending());
  EXPECT_THAT(open_files(), Not(Contains(HasSubstr("step-000000000005"))));
  EXPECT_FALSE(snapshot::exists(snapshots.folder() + "/step-000000000005"));
  for (int64_t update = 8; update < 11; ++update) {
    nodes.save(snapshots, update);
  }
  std::vector<std::string> notes;
  const auto found = nodes.snapshots().newest(-1, notes);
  ASSERT_TRUE(found);
  expect_whole(nodes, *found, 10);
}

TEST(MemoryLines, ASnapshotForgottenWhileItIsWrittenLeavesNothing) {
  const Nodes nodes(apart());
  MemorySnapshots snapshots = nodes.snapshots();
  snapshots.open("run-a", 0, /*min_shard_bytes=*/1);
  nodes.begin_save(snapshots, 5);
  snapshots.forget(0, 5);
  const auto report = snapshots.wait();
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->error);
  EXPECT_FALSE(snapshot::exists(snapshots.folder() + "/step-000000000005"));
  nodes.save(snapshots, 8);
  EXPECT_TRUE(snapshot::exists(snapshots.folder() + "/step-000000000008"));
}

TEST(MemoryLines, ANodeThatGotItsFilesAtTheStartStandsInForTheNextLostOne) {
  const Nodes nodes(apart());
  {
    MemorySnapshots before = nodes.snapshots();
    before.open("run-a", 0, /*min_shard_bytes=*/1);
    nodes.save(before, 5);
  }
  std::vector<std::string> notes;
  for (int lost = nodes.ranks.size() - 1; lost >= 0; --lost) {  // no save between
    nodes.lose({lost});
    const auto found = nodes.snapshots().newest(-1, notes);
    ASSERT_TRUE(found) << lost;
    expect_whole(nodes, *found, 5);
  }
}

/// Rank 1's node is away with snapshots 5 and 8 while the others go on from 5 and save another 8.
TEST(MemoryLines, ANodeThatComesBackWithAnOldLineOfSnapshotsHasNoSay) {
  const Nodes nodes(apart());
  const bool is_away = nodes.ranks.rank() == 1;
  const std::string away = nodes.memory() + "-away";
  {
    MemorySnapshots before = nodes.snapshots();
    before.open("run-a", 0, /*min_shard_bytes=*/1);
    nodes.save(before, 5);
    nodes.save(before, 8);
  }
  if (is_away) {
    std::filesystem::copy(nodes.memory(), away, std::filesystem::copy_options::recursive);
  }
  nodes.lose({1});
  std::vector<std::string> notes;
  ASSERT_TRUE(nodes.snapshots().newest(-1, notes));
  {
    MemorySnapshots meanwhile = nodes.snapshots();
    meanwhile.open("run-a", 5, /*min_shard_bytes=*/1);
    nodes.save(meanwhile, 8, /*base=*/1000);
  }
  nodes.lose({1});
  if (is_away) {
    std::filesystem::remove_all(nodes.memory());
    std::filesystem::rename(away, nodes.memory());
  }
  nodes.ranks.barrier().wait();
  const auto found = nodes.snapshots().newest(-1, notes);
  EXPECT_THAT(notes, IsEmpty());
  ASSERT_TRUE(found);
  expect_whole(nodes, *found, 8, /*base=*/1000);
  const MemorySnapshots after = nodes.snapshots();
  EXPECT_FALSE(is_away && snapshot::exists(after.folder() + "/step-000000000005"));
}

TEST(MemoryLines, OpenTakesNothingFromANodeOfAnOldLine) {
  const Nodes nodes(apart());
  {
    MemorySnapshots before = nodes.snapshots();
    before.open("run-a", 0, /*min_shard_bytes=*/1);
    nodes.save(before, 5);
  }
  MemorySnapshots after = nodes.snapshots();
  std::vector<std::string> notes;
  ASSERT_TRUE(after.newest(-1, notes));  // now each node has all files
  if (nodes.ranks.rank() == 1) {
    std::ofstream(after.folder() + "/token") << "another";
  }
  after.open("run-a", 5, /*min_shard_bytes=*/1);
  EXPECT_EQ(snapshot::exists(after.folder() + "/step-000000000005"), nodes.ranks.rank() != 1);
}

TEST(MemoryLines, AFolderThatAnotherJobUsesIsLeftAlone) {
  const Nodes nodes(apart());
  {
    MemorySnapshots before = nodes.snapshots();
    before.open("run-a", 0, /*min_shard_bytes=*/1);
    nodes.save(before, 5);
  }
  MemorySnapshots after = nodes.snapshots();
  const std::string of_rank_0 = nodes.ranks.all_gather_bytes(after.folder())[0];
  std::optional<snapshot::FolderLock> other;
  if (nodes.ranks.rank() == 1) {
    other.emplace(of_rank_0);
  }
  nodes.ranks.barrier().wait();
  try {
    after.open("run-b", 9, /*min_shard_bytes=*/1);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("another job"));
  }
  nodes.ranks.barrier().wait();
  EXPECT_TRUE(snapshot::exists(of_rank_0 + "/step-000000000005"));
  other.reset();
  std::vector<std::string> notes;
  EXPECT_TRUE(nodes.snapshots().newest(-1, notes));
}

TEST(MemoryLines, FilesThatCannotGetTheirNamesAreRemoved) {
  const Nodes nodes(apart());
  MemorySnapshots snapshots = nodes.snapshots();
  snapshots.open("run-a", 0, /*min_shard_bytes=*/1);
  nodes.begin_save(snapshots, 5);
  const auto disk = std::make_shared<testing::FaultFileSystem>();
  const snapshot::FileSystemScope scope(disk);
  disk->fail_where(
      [](testing::FaultFileSystem::Call call, const std::string& path) {
        return call == testing::FaultFileSystem::Call::rename &&
               path.find(".part") != std::string::npos;
      },
      EACCES);
  const auto report = snapshots.wait();
  ASSERT_TRUE(report);
  EXPECT_THAT(report->warnings, ElementsAre(HasSubstr("Permission denied")));
  EXPECT_THAT(snapshot::names_in(report->path), Not(Contains(HasSubstr(".part"))));
}

TEST(MemoryLines, AWarningOfAnyNodeIsSaidWithItsRank) {
  const Nodes nodes(apart());
  const auto disk = std::make_shared<testing::FaultFileSystem>();
  const snapshot::FileSystemScope scope(disk);
  MemorySnapshots snapshots = nodes.snapshots();
  snapshots.open("run-a", 0, /*min_shard_bytes=*/1);
  disk->fail_where(
      [&](testing::FaultFileSystem::Call call, const std::string& path) {
        return nodes.ranks.rank() == 1 && call == testing::FaultFileSystem::Call::create &&
               path.find("latest") != std::string::npos;
      },
      EACCES);
  nodes.begin_save(snapshots, 5);
  const auto report = snapshots.wait();
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->error);
  EXPECT_THAT(report->warnings, ElementsAre(::testing::AllOf(::testing::StartsWith("rank 1: "),
                                                             HasSubstr("latest"))));
}

}  // namespace
}  // namespace lockstep
