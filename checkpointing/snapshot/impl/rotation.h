#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/manifest.h>
#include <lockstep/checkpointing/snapshot/impl/writer_options.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// Removes the snapshots of a run that KeepOptions do not keep. Ranks: one of them. Threads: one at
/// a time.
class Rotation {
 public:
  /// Finds the snapshots of options.run() in the folder.
  Rotation(std::string folder, const WriterOptions& options);

  /// Call when a snapshot is complete. Removes snapshots that need not be kept; returns one line
  /// for each that could not be removed.
  std::vector<std::string> committed(const SnapshotId& id, const Manifest& manifest);
  /// Call when the manifest of a complete snapshot was replaced.
  void note(const SnapshotId& id, const Manifest& manifest);

 private:
  bool is_loaded_from(const SnapshotId& id) const;
  std::vector<SnapshotId> not_to_be_kept(const SnapshotId& newest) const;
  void hide(const SnapshotId& id);

  std::string folder_;
  WriterOptions options_;
  std::map<SnapshotId, std::optional<double>> metrics_;  // of all snapshots of this run
  bool lower_is_better_ = true;                          // of the last noted one with a metric
};

/// Removes unfinished files of this run in the folder. Returns why files could not be removed: on
/// NFS an open file stays as .nfsXXXX until its process closes it. It does no harm, and the next
/// save tries again.
std::vector<std::string> remove_leftovers(FileSystem& files, const std::string& folder,
                                          const std::string& run);

}  // namespace lockstep::snapshot
