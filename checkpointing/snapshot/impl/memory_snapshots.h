#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/folder_lock.h>
#include <lockstep/checkpointing/snapshot/impl/neighbour_copies.h>
#include <lockstep/checkpointing/snapshot/impl/private_folder.h>
#include <lockstep/checkpointing/snapshot/impl/run_key.h>
#include <lockstep/checkpointing/snapshot/impl/writer.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/collectives/impl/agreement.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// Snapshots in the memory of each node (tmpfs), from which a run resumes after a rank has died.
/// The ranks of a node share a folder with the files that they wrote, a manifest of all ranks'
/// files and, after the save, copies of the files of the node before. So all files survive the loss
/// of one node. newest() copies missing files to each node.
///
/// The folder on the disk has a file `memory` with the name of the run and a random token, renewed
/// by open(). Each node keeps the token (and the previous one until the new one is on the disk), so
/// memory of another run, or from before the run resumed from the disk, is never used. Memory that
/// other users can read or change is not used either, nor is a snapshot whose manifest has no
/// signature by the key of the run folder (RunKey). Ranks: is_pending(), is_phase_done(), has()
/// and belongs() are local, every other call is collective. Threads: one.
class MemorySnapshots {
 public:
  /// `memory`: a tmpfs folder. `run_folder`: the folder of the run, on the disk. `chunk_bytes`: see
  /// NeighbourCopies.
  MemorySnapshots(detail::Agreement agreement, const std::string& memory,
                  const std::string& run_folder, size_t chunk_bytes = NeighbourCopies::kChunkBytes);

  /// Why the folder cannot be used: other users could change it on some node, or know the key of
  /// the run folder. Empty: it can.
  /// Collective; the same on every rank.
  std::string why_not_private() const;

  /// The newest complete snapshot of the run with an update above `after`; empty: none, also if
  /// why_not_private() is not empty. Afterwards every node has its files; a node that newly takes
  /// part has no other snapshots. `notes` gets the reasons why others cannot be used.
  std::optional<Snapshot> newest(int64_t after, std::vector<std::string>& notes) const;

  /// Call before the first save(). Removes snapshots of other runs than `run` and those above
  /// `update`. Throws Error on every rank if the folder cannot be used; if another job uses it,
  /// nothing of that job is changed.
  void open(const std::string& run, int64_t update, int64_t min_shard_bytes);
  bool is_open() const { return writer_ != nullptr; }
  /// As in Writer, but a save ends once the next node has its copies, or with a warning if it
  /// cannot get them. save() completes the previous save and returns its report.
  std::optional<SaveReport> save(const Content& content, int64_t update);
  bool is_pending() const { return is_open() && (writer_->is_pending() || copied_); }
  /// As in Writer; while files are copied to the next node: whether this rank's chunk is done.
  bool is_phase_done() const;
  std::optional<SaveReport> advance();
  std::optional<SaveReport> wait();

  /// Call when the run has resumed from the snapshot of `update`: removes those of later updates.
  void resume_from(int64_t update);
  /// Whether the newest snapshot, complete or pending, is of this update.
  bool has(int64_t update) const { return newest_ == update; }
  /// Whether this run uses the folder: open() was called, or the run resumed from it.
  bool belongs() const { return is_open() || newest_; }

  /// Removes the snapshots of these updates, both included. Stops copying their files; a snapshot
  /// that is still being written is removed when complete (only if first == 0).
  void forget(int64_t first, int64_t last) noexcept;
  /// Call before a run resumes from the disk: makes all snapshots in memory of `run_folder`
  /// invalid, on all nodes.
  static void forget_all_of(const std::string& run_folder, const detail::Agreement& agreement);
  /// Removes the folder and all files in it.
  void remove() noexcept;

  const std::string& folder() const { return folder_.path(); }

 private:
  bool is_first_of_node() const { return agreement_.communicator().local_rank() == 0; }
  /// The content of the file `memory`, empty if there is none, and the key beside it.
  struct Mark {
    std::string run;
    std::string token;
    std::optional<RunKey> key;
  };
  Mark mark() const;
  /// Whether this node's snapshots belong to this token.
  bool has_token(const std::string& token) const;
  void remove_steps(const std::function<bool(int64_t)>& condition) const;
  std::vector<int64_t> steps_of_nodes(const std::string& token) const;
  void complete(const std::string& path, const std::string& token) const;
  void adopt(int64_t step, const std::string& token) const;

  detail::Agreement agreement_;
  std::string run_folder_;
  PrivateFolder folder_;  // of this node
  size_t chunk_bytes_;
  int64_t forgotten_ = -1;            // snapshots up to this update are not kept
  std::unique_ptr<FolderLock> lock_;  // on the first rank of a node, while open
  std::unique_ptr<Writer> writer_;
  std::optional<int64_t> newest_;            // update of the newest, complete or pending
  std::unique_ptr<NeighbourCopies> copies_;  // null: one node, or a copy failed
  std::optional<SaveReport> copied_;         // of the save whose files are being copied
};

}  // namespace lockstep::snapshot
