#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::snapshot {

/// Which snapshots are kept when a new one is complete; the others are removed. Only snapshots of
/// the same run are ever removed. Snapshots that cannot be read are left alone. Snapshots of the
/// same update count as one, and the last of them is the one that is kept.
struct KeepOptions {
  /// Keeps this many of the newest snapshots. Requires: >= 1.
  TORCH_ARG(int64_t, last) = 3;
  /// Also keeps every snapshot whose step is a multiple of this. 0: none. Requires: not negative.
  TORCH_ARG(int64_t, every) = 0;
  /// Also keeps this many snapshots with the best metric, among those saved with one. Requires: not
  /// negative.
  TORCH_ARG(int64_t, best) = 1;
  /// Whether the lower of two metrics is better. Unset: Metric::lower_is_better() for results of
  /// evaluate(), else the lower one.
  TORCH_ARG(std::optional<bool>, lower_is_better);
};

}  // namespace lockstep::snapshot

namespace lockstep {

using snapshot::KeepOptions;

/// Where and how a Trainer saves snapshots. Ranks: the same options on every rank.
struct SnapshotOptions {
  /// The folder of the run. It is created if necessary, and the constructor of the Trainer checks
  /// that it can be used. Empty: the folder that is passed to Trainer::resume().
  TORCH_ARG(std::string, folder);
  /// True: save() copies this rank's share into host memory and returns; a thread writes the copy
  /// while training continues. False: save() returns after the snapshot is on the disk.
  TORCH_ARG(bool, asynchronous) = true;
  /// Which snapshots are kept. Default: the newest 3, and the one with the best metric.
  TORCH_ARG(KeepOptions, keep);
  /// Tensors are divided into files of at least this many bytes. Requires: >= 1.
  TORCH_ARG(int64_t, min_shard_bytes) = int64_t{4} << 20;
  /// Every this many windows the Trainer also saves a snapshot in the memory of each node, and then
  /// copies each node's files to the next node. 0: none. After a rank was killed, or a node lost,
  /// resume(folder) goes on from memory if that snapshot is newer than the one on the disk. The
  /// snapshots in memory are removed when one on the disk is as new, and when the Trainer is
  /// destroyed. Memory of each node: three times the bytes of its files, and as much for those of
  /// the node before. An update sends at most 16 MiB, in the background. If a save in memory fails,
  /// rank 0 prints the reason and the run goes on without. (Gemini, SOSP 2023, keeps such copies in
  /// the memory of other hosts.) Requires: >= 0.
  TORCH_ARG(int64_t, memory_every) = 0;
  /// A folder in memory (tmpfs) that the ranks of a node share. It must be one in which other users
  /// cannot rename what is not theirs; what is saved there is for this user alone (mode 0700).
  /// Where that is not so, rank 0 says why, and the run goes on with the disk only.
  TORCH_ARG(std::string, memory_folder) = "/dev/shm";
};

}  // namespace lockstep
