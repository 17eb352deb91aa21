// Snapshots in memory where each node has a memory of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/format/file_system.h>
#include <lockstep/runtime/state/memory_snapshots.h>

#include <filesystem>

#include "mpi_nodes.h"
#include "mpi_world.h"
#include "runtime/temporary_folder.h"

namespace lockstep {
namespace {

using detail::MemorySnapshots;
using testing::all_layouts;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Layout;
using testing::on_nodes;
using ::testing::SizeIs;
using testing::TemporaryFolder;
using testing::text_of;
using testing::world;

/// Ranks on nodes, each node with its own memory, and a folder on a disk that all share.
class Nodes {
 public:
  explicit Nodes(const Layout& layout)
      : ranks(on_nodes(layout)),
        root(ranks.all_gather_bytes(own_.path())[0]),
        node(layout[static_cast<size_t>(ranks.rank())]) {
    std::filesystem::create_directories(root + "/run");
    std::filesystem::create_directories(memory());
    ranks.barrier().wait();
  }
  ~Nodes() { ranks.barrier().wait(); }

  std::string memory() const { return root + "/node" + std::to_string(node); }
  MemorySnapshots snapshots() const {
    return MemorySnapshots(detail::Agreement(ranks, ExitCode::snapshot), memory(), root + "/run");
  }
  /// Saves what all ranks have, and what each has alone, as of `update`.
  void save(MemorySnapshots& snapshots, int64_t update) const {
    snapshot::Content content;
    for (int64_t k = 0; k < 4; ++k) {
      content.add("model", "weight" + std::to_string(k), at::arange(100) * update + k);
    }
    content.add_own("random", "state", at::full({3}, 10 * ranks.rank() + update));
    snapshots.save(content, update);
    EXPECT_FALSE(snapshots.wait()->error);
  }

 private:
  TemporaryFolder own_;

 public:
  Communicator ranks;
  std::string root;
  int node;
};

void expect_whole(const Nodes& nodes, const Snapshot& saved, int64_t update) {
  EXPECT_EQ(saved.manifest().step, update);
  for (int64_t k = 0; k < 4; ++k) {
    EXPECT_TRUE(saved.section("model")
                    .read("weight" + std::to_string(k))
                    .equal(at::arange(100) * update + k));
  }
  for (int rank = 0; rank < nodes.ranks.size(); ++rank) {
    EXPECT_TRUE(saved.read_own("random", rank, "state").equal(at::full({3}, 10 * rank + update)));
  }
}

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

TEST(MemoryNodes, ALostNodeTakesTheSnapshotWithIt) {
  Layout apart;
  for (int rank = 0; rank < world().size(); ++rank) {
    apart.push_back(rank);
  }
  const Nodes nodes(apart);
  {
    MemorySnapshots before = nodes.snapshots();
    before.open("run-a", 0, /*min_shard_bytes=*/1);
    nodes.save(before, 5);
  }
  if (nodes.ranks.rank() == 1) {
    std::filesystem::remove_all(nodes.memory());
  }
  nodes.ranks.barrier().wait();
  std::vector<std::string> notes;
  EXPECT_FALSE(nodes.snapshots().newest(-1, notes));
  MemorySnapshots after = nodes.snapshots();
  after.open("run-a", 2, /*min_shard_bytes=*/1);
  nodes.save(after, 3);
  const auto found = nodes.snapshots().newest(-1, notes);
  ASSERT_TRUE(found);
  expect_whole(nodes, *found, 3);
}

TEST(MemoryNodes, AFileThatNoNodeHasIsSaidOnEveryRank) {
  Layout apart;
  for (int rank = 0; rank < world().size(); ++rank) {
    apart.push_back(rank);
  }
  const Nodes nodes(apart);
  std::string path;
  {
    MemorySnapshots before = nodes.snapshots();
    before.open("run-a", 0, /*min_shard_bytes=*/1);
    nodes.save(before, 5);
    path = before.folder() + "/step-000000000005";
  }
  if (nodes.ranks.rank() == 0) {
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
