#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/run_key.h>
#include <lockstep/checkpointing/snapshot/snapshot_options.h>
#include <lockstep/collectives/impl/option_list.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lockstep::snapshot {

/// How the snapshots of a run are written. Ranks: the same values on every rank.
struct WriterOptions {
  /// Name of the run: rotation removes only snapshots with this name. At most 64 characters of
  /// [A-Za-z0-9_-]. Empty: rank 0 generates a name. A resumed run passes the name in the manifest.
  TORCH_ARG(std::string, run);
  TORCH_ARG(KeepOptions, keep);
  /// Path of the snapshot from which this run was resumed: never removed. May be empty.
  TORCH_ARG(std::string, loaded_from);
  /// The snapshot from which this run was resumed. The folder may still hold later ones (they
  /// cannot be read, or an earlier snapshot was resumed). These are renamed to NAME.aside when the
  /// run starts; they are never removed.
  TORCH_ARG(std::optional<SnapshotId>, resumed);
  /// Tensors that all ranks share are divided among as many files as there are ranks, but a file is
  /// not made smaller than this many bytes. Requires: >= 1.
  TORCH_ARG(int64_t, min_shard_bytes) = int64_t{4} << 20;
  /// True: the folder is in the memory of each node (tmpfs). Each node then has the files of its
  /// own ranks, and its first rank completes the snapshot there.
  TORCH_ARG(bool, node_local) = false;
  /// Signs the manifest. Empty: it has no signature.
  TORCH_ARG(std::optional<RunKey>, key);
  /// File system to write to. Requires: not null.
  TORCH_ARG(std::shared_ptr<FileSystem>, files) = FileSystem::current();

 public:
  /// Throws Error with the name of the wrong field.
  void validate() const;
};

}  // namespace lockstep::snapshot

namespace lockstep::detail {

LOCKSTEP_OPTION_LIST(snapshot::KeepOptions) {
  visit("last", options.last(), ">= 1");  // the newest cannot be removed
  visit("every", options.every(), ">= 0");
  visit("best", options.best(), ">= 0");
  visit("lower_is_better", options.lower_is_better());
}

}  // namespace lockstep::detail
