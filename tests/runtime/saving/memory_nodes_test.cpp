// Snapshots in memory where each node has a memory of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/memory_snapshots.h>

#include <filesystem>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "checkpointing/snapshot_fault_file_system.h"
#include "memory_nodes.h"
#include "test_names.h"

namespace lockstep {
namespace {

using snapshot::MemorySnapshots;

TEST(MemoryNodes, EachNodeGetsTheFilesOfTheOthers) {
  for (const Layout& layout : all_layouts(world().size())) {
    SCOPED_TRACE(text_of(layout));
    const Nodes nodes(layout);
    {
      MemorySnapshots before = nodes.snapshots();
      before.open("run-a", 0, /*min_shard_bytes=*/1);
      nodes.save(before, 5);
      nodes.save(before, 8);
    }
    std::vector<std::string> notes;
    const auto found = nodes.snapshots().newest(/*after=*/3, notes);
    EXPECT_THAT(notes, IsEmpty());
    ASSERT_TRUE(found);
    expect_whole(nodes, *found, 8);
    EXPECT_FALSE(nodes.snapshots().newest(/*after=*/8, notes));
  }
}

TEST(MemoryNodes, TheFilesOfALostNodeAreWithItsNeighbour) {
  for (int lost = 0; lost < world().size(); ++lost) {
    SCOPED_TRACE(lost);
    const Nodes nodes(apart());
    {
      MemorySnapshots before = nodes.snapshots();
      before.open("run-a", 0, /*min_shard_bytes=*/1);
      nodes.save(before, 5);
    }
    nodes.lose({lost});
    std::vector<std::string> notes;
    const auto found = nodes.snapshots().newest(-1, notes);
    EXPECT_THAT(notes, IsEmpty());
    ASSERT_TRUE(found);
    expect_whole(nodes, *found, 5);
    MemorySnapshots after = nodes.snapshots();
    after.open("run-a", 5, /*min_shard_bytes=*/1);
    nodes.save(after, 6);
    nodes.lose({(lost + 1) % nodes.ranks.size()});
    const auto next = nodes.snapshots().newest(5, notes);
    ASSERT_TRUE(next);
    expect_whole(nodes, *next, 6);
  }
}

TEST(MemoryNodes, AllNodesLostIsAllLost) {
  const Nodes nodes(apart());
  {
    MemorySnapshots before = nodes.snapshots();
    before.open("run-a", 0, /*min_shard_bytes=*/1);
    nodes.save(before, 5);
  }
  std::vector<int> all(static_cast<size_t>(nodes.ranks.size()));
  std::iota(all.begin(), all.end(), 0);
  nodes.lose(all);
  std::vector<std::string> notes;
  EXPECT_FALSE(nodes.snapshots().newest(-1, notes));
  MemorySnapshots after = nodes.snapshots();
  after.open("run-a", 2, /*min_shard_bytes=*/1);
  nodes.save(after, 3);
  const auto found = nodes.snapshots().newest(-1, notes);
  ASSERT_TRUE(found);
  expect_whole(nodes, *found, 3);
}

/// The job dies after each number of steps of a save, and any node is lost with it.
TEST(MemoryNodes, AtEveryStageOfASaveTheLossOfANodeLeavesAWholeSnapshot) {
  int stages = 1;
  for (int stage = 0; stage < stages; ++stage) {
    for (int lost = 0; lost < world().size(); ++lost) {
      SCOPED_TRACE(std::to_string(stage) + " " + std::to_string(lost));
      const Nodes nodes(apart());
      bool is_whole = false;
      try {
        MemorySnapshots before = nodes.snapshots(/*chunk_bytes=*/1000);
        before.open("run-a", 0, /*min_shard_bytes=*/1);
        nodes.save(before, 5);
        nodes.begin_save(before, 8);
        for (int taken = 0; taken < stage && before.is_pending(); ++taken) {
          before.advance();
        }
        is_whole = !before.is_pending();
        stages = is_whole ? stages : stage + 2;
        throw std::runtime_error("the job dies");
      } catch (const std::runtime_error&) {
        nodes.lose({lost});
      }
      std::vector<std::string> notes;
      const auto found = nodes.snapshots().newest(-1, notes);
      ASSERT_TRUE(found);
      const int64_t step = found->manifest().step;
      EXPECT_TRUE(step == 8 || (step == 5 && !is_whole)) << step;
      expect_whole(nodes, *found, step);
    }
  }
  EXPECT_GE(stages, 4);
}

TEST(MemoryNodes, CopiesThatCannotBeMadeAreSaidAndTheSnapshotStays) {
  const Nodes nodes(apart());
  MemorySnapshots snapshots = nodes.snapshots();
  snapshots.open("run-a", 0, /*min_shard_bytes=*/1);
  const auto disk = std::make_shared<testing::FaultFileSystem>();
  std::optional<snapshot::SaveReport> report;
  {
    nodes.begin_save(snapshots, 5);
    const snapshot::FileSystemScope scope(disk);
    disk->fail_where(
        [&](testing::FaultFileSystem::Call call, const std::string& path) {
          return nodes.ranks.rank() == 1 && call == testing::FaultFileSystem::Call::create &&
                 path.find(".part") != std::string::npos;
        },
        ENOSPC);
    report = snapshots.wait();
  }
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->error);
  EXPECT_THAT(report->warnings,
              ElementsAre(::testing::AllOf(HasSubstr("rank 1: "), HasSubstr("No space left"))));
  nodes.save(snapshots, 6);
  std::vector<std::string> notes;
  const auto found = nodes.snapshots().newest(-1, notes);
  ASSERT_TRUE(found);
  expect_whole(nodes, *found, 6);
}

TEST(MemoryNodes, AFileThatNoNodeHasIsSaidOnEveryRank) {
  const Nodes nodes(apart());
  std::string path;
  {
    MemorySnapshots before = nodes.snapshots();
    before.open("run-a", 0, /*min_shard_bytes=*/1);
    nodes.save(before, 5);
    path = before.folder() + "/step-000000000005";
  }
  if (nodes.ranks.rank() <= 1) {  // rank 0 sends its files to rank 1
    for (const std::string& name : snapshot::names_in(path)) {
      if (name != "manifest.json") {
        std::filesystem::remove(path + "/" + name);
      }
    }
  }
  nodes.ranks.barrier().wait();
  std::vector<std::string> notes;
  EXPECT_FALSE(nodes.snapshots().newest(-1, notes));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("step-000000000005")));
}

TEST(MemoryNodes, AnotherRunsSnapshotsAreNotUsedAndRemoved) {
  const Nodes nodes(Layout(static_cast<size_t>(world().size()), 0));
  {
    MemorySnapshots before = nodes.snapshots();
    before.open("run-a", 0, /*min_shard_bytes=*/1);
    nodes.save(before, 5);
  }
  if (nodes.ranks.rank() == 0) {
    std::filesystem::remove_all(nodes.root + "/run");
    std::filesystem::create_directories(nodes.root + "/run");
  }
  nodes.ranks.barrier().wait();
  std::vector<std::string> notes;
  EXPECT_FALSE(nodes.snapshots().newest(-1, notes));
  MemorySnapshots after = nodes.snapshots();
  after.open("run-b", 100, /*min_shard_bytes=*/1);
  EXPECT_FALSE(nodes.snapshots().newest(-1, notes));
  EXPECT_THAT(notes, IsEmpty());
}

}  // namespace
}  // namespace lockstep
