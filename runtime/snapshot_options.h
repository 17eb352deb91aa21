#pragma once

#include <lockstep/checkpointing/snapshot/writer_options.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

using snapshot::KeepOptions;

/// Where and how a Trainer saves. Ranks: the same everywhere.
struct SnapshotOptions {
  /// The folder of the run, made if need be and tried out when the Trainer is made. Empty: the one
  /// that Trainer::resume() is given.
  TORCH_ARG(std::string, folder);
  /// True: save() costs the copy of this rank's share into host memory; a thread writes it while
  /// training goes on. False: save() returns once the snapshot is on the disk.
  TORCH_ARG(bool, asynchronous) = true;
  /// Which snapshots stay: the newest 3, unless told otherwise.
  TORCH_ARG(KeepOptions, keep);
  /// Tensors are spread over files of at least so many bytes. Requires: >= 1.
  TORCH_ARG(int64_t, min_shard_bytes) = int64_t{4} << 20;
  /// What changes the disk.
  TORCH_ARG(std::shared_ptr<snapshot::FileSystem>, files) = snapshot::FileSystem::real();

 public:
  snapshot::WriterOptions writer() const {
    return snapshot::WriterOptions().keep(keep()).min_shard_bytes(min_shard_bytes()).files(files());
  }
};

}  // namespace lockstep
