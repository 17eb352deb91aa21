#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/memory_snapshots.h>
#include <lockstep/collectives/exit_code.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mpi_nodes.h"
#include "mpi_world.h"
#include "runtime/temporary_folder.h"

namespace lockstep::testing {

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
  /// Files are copied in many chunks, whose number differs between nodes.
  snapshot::MemorySnapshots snapshots(size_t chunk_bytes = 64) const {
    return snapshot::MemorySnapshots(detail::Agreement(ranks, ExitCode::snapshot), memory(),
                                     root + "/run", chunk_bytes);
  }
  /// Saves what all ranks have, and what each has alone, as of `update`.
  void save(snapshot::MemorySnapshots& snapshots, int64_t update, int64_t base = 10) const {
    begin_save(snapshots, update, base);
    const auto report = snapshots.wait();
    EXPECT_FALSE(report->error);
    EXPECT_THAT(report->warnings, ::testing::IsEmpty());
  }
  void begin_save(snapshot::MemorySnapshots& snapshots, int64_t update, int64_t base = 10) const {
    snapshot::Content content;
    for (int64_t k = 0; k < 4; ++k) {
      content.add("model", "weight" + std::to_string(k), at::arange(100) * update + k);
    }
    content.add_own("random", "state", own_of(ranks.rank(), update, base));
    snapshots.save(content, update);
  }
  static at::Tensor own_of(int rank, int64_t update, int64_t base) {
    return at::full({3 + 20 * rank}, base * rank + update);
  }
  /// Nodes of these ranks lose their memory.
  void lose(const std::vector<int>& lost) const {
    ranks.barrier().wait();
    if (std::count(lost.begin(), lost.end(), ranks.rank()) > 0) {
      std::filesystem::remove_all(memory());
      std::filesystem::create_directories(memory());
    }
    ranks.barrier().wait();
  }

 private:
  TemporaryFolder own_;

 public:
  Communicator ranks;
  std::string root;
  int node;
};

inline void expect_whole(const Nodes& nodes, const Snapshot& saved, int64_t update,
                         int64_t base = 10) {
  EXPECT_EQ(saved.manifest().step, update);
  for (int64_t k = 0; k < 4; ++k) {
    EXPECT_TRUE(saved.section("model")
                    .read("weight" + std::to_string(k))
                    .equal(at::arange(100) * update + k));
  }
  for (int rank = 0; rank < nodes.ranks.size(); ++rank) {
    EXPECT_TRUE(saved.read_own("random", rank, "state").equal(Nodes::own_of(rank, update, base)));
  }
}

/// Each rank on a node of its own.
inline Layout apart() {
  Layout layout;
  for (int rank = 0; rank < world().size(); ++rank) {
    layout.push_back(rank);
  }
  return layout;
}

}  // namespace lockstep::testing
