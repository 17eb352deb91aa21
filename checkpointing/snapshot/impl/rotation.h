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

/// Removes the snapshots of one run that are not to be kept. Ranks: one of them. Threads: one at a
/// time.
class Rotation {
 public:
  /// Finds the snapshots of options.run() that are in the folder already.
  Rotation(std::string folder, const WriterOptions& options);

  /// A snapshot of this run is complete. Removes what need not be kept, and returns one line for
  /// each that could not be removed.
  std::vector<std::string> committed(const SnapshotId& id, const Manifest& manifest);
  /// A complete snapshot has this manifest now.
  void note(const SnapshotId& id, const Manifest& manifest);

 private:
  bool is_loaded_from(const SnapshotId& id) const;
  std::vector<SnapshotId> not_to_be_kept(const SnapshotId& newest) const;
  void hide(const SnapshotId& id);

  std::string folder_;
  WriterOptions options_;
  std::map<SnapshotId, std::optional<double>> metrics_;  // of this run's snapshots
  bool lower_is_better_ = true;                          // of the newest that has a metric
};

/// Removes what this run left unfinished in the folder. Returns why something could not be removed:
/// on NFS a file that some process has open stays as .nfsXXXX until that process closes it. It does
/// no harm, and the next save tries again.
std::vector<std::string> remove_leftovers(FileSystem& files, const std::string& folder,
                                          const std::string& run);

}  // namespace lockstep::snapshot
