#pragma once

#include <lockstep/checkpointing/snapshot/keep_options.h>
#include <torch/arg.h>

#include <cstdint>
#include <string>

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
  /// Which snapshots are kept. Default: the newest 3.
  TORCH_ARG(KeepOptions, keep);
  /// Tensors are divided into files of at least this many bytes. Requires: >= 1.
  TORCH_ARG(int64_t, min_shard_bytes) = int64_t{4} << 20;
};

}  // namespace lockstep
