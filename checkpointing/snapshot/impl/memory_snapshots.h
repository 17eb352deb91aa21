#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/folder_lock.h>
#include <lockstep/checkpointing/snapshot/impl/neighbour_copies.h>
#include <lockstep/checkpointing/snapshot/impl/private_folder.h>
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

namespace lockstep::detail {

/// Snapshots in the memory of each node (tmpfs), from which a run goes on after one of its ranks
/// has died. The ranks of a node share a folder there; it has the files that these ranks wrote, a
/// manifest of all ranks' files, and soon copies of the files of the node before. So the loss of
/// one node leaves all files somewhere. newest() copies to each node what is missing there.
///
/// The folder on the disk has a file `memory` with the name of the run and a random token, renewed
/// by open(). Each node keeps the token (and the previous one until the new one is on the disk), so
/// memory of another run, or from before the run went on from the disk, is never used. Nor is it
/// where another user can read or change it. Ranks: is_pending(), is_ready(), has() and belongs()
/// are local, every other call is collective. Threads: one.
class MemorySnapshots {
 public:
  /// `memory`: a tmpfs folder. `run_folder`: the folder of the run, on the disk. `chunk_bytes`: see
  /// NeighbourCopies.
  MemorySnapshots(Agreement agreement, const std::string& memory, const std::string& run_folder,
                  size_t chunk_bytes = NeighbourCopies::kChunkBytes);

  /// Why nothing is read or written here: other users could change it on some node. Empty: nothing
  /// is wrong. The same on every rank.
  std::string why_not_private() const;

  /// The newest whole snapshot of the run whose update is above `after`, if there is one; why
  /// others cannot be used is added to `notes`; none is if why_not_private() is not empty. Then
  /// every node has its files, and nothing else of this folder that does not belong to the run.
  std::optional<Snapshot> newest(int64_t after, std::vector<std::string>& notes) const;

  /// Before the first save(): snapshots in memory are of the run with this name, and those above
  /// `update`, or of other runs, are removed. Throws Error on every rank if the folder cannot be
  /// used; if another job uses it, nothing of that job is changed.
  void open(const std::string& run, int64_t update, int64_t min_shard_bytes);
  bool is_open() const { return writer_ != nullptr; }
  /// As in snapshot::Writer, but a save ends once the next node has its copies, or once it is clear
  /// that it gets none: a warning says why. save() completes the save before, and returns how that
  /// ended.
  std::optional<snapshot::SaveReport> save(const snapshot::Content& content, int64_t update);
  bool is_pending() const { return is_open() && (writer_->is_pending() || copied_); }
  bool is_ready() const;
  std::optional<snapshot::SaveReport> advance();
  std::optional<snapshot::SaveReport> wait();

  /// The run goes on from the snapshot of `update`; those of later updates are removed.
  void resume_from(int64_t update);
  /// Whether the newest snapshot, perhaps still on its way, is of this update.
  bool has(int64_t update) const { return newest_ == update; }
  /// Whether the folder is this run's: it was saved to, or gone on from.
  bool belongs() const { return is_open() || newest_; }

  /// Removes the snapshots of these updates, both included. Stops copying their files; a snapshot
  /// that is still being written is removed when complete (only if first == 0).
  void forget(int64_t first, int64_t last) noexcept;
  /// Before a run goes on from the disk: no snapshot in memory belongs to `run_folder` any more,
  /// whichever node has it.
  static void forget_all_of(const std::string& run_folder, const Agreement& agreement);
  /// Removes the folder with all that is in it.
  void remove() noexcept;

  const std::string& folder() const { return folder_.path(); }

 private:
  bool is_leader() const { return agreement_.communicator().local_rank() == 0; }
  /// What the folder on the disk says of its snapshots in memory; empty: nothing.
  struct Mark {
    std::string run;
    std::string token;
  };
  Mark mark() const;
  /// Whether this node's snapshots are those that the token stands for.
  bool has_token(const std::string& token) const;
  void remove_steps(const std::function<bool(int64_t)>& condition) const;
  std::vector<int64_t> steps_of_nodes(const std::string& token) const;
  void complete(const std::string& path, const std::string& token) const;
  void adopt(int64_t step, const std::string& token) const;

  Agreement agreement_;
  std::string run_folder_;
  snapshot::PrivateFolder folder_;  // of this node
  size_t chunk_bytes_;
  int64_t forgotten_ = -1;                      // snapshots up to this update are not kept
  std::unique_ptr<snapshot::FolderLock> lock_;  // of the first rank of a node, while open
  std::unique_ptr<snapshot::Writer> writer_;
  std::optional<int64_t> newest_;               // update of the newest, or of that on its way
  std::unique_ptr<NeighbourCopies> copies_;     // none: one node, or no memory for them
  std::optional<snapshot::SaveReport> copied_;  // of the save whose files are being copied
};

}  // namespace lockstep::detail
