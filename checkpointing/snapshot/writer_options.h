#pragma once

#include <torch/arg.h>

#include <lockstep/checkpointing/snapshot/file_system.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lockstep::snapshot {

/// Which snapshots are removed after a new one is complete. Only those of the same run are ever
/// touched; those that cannot be read are left alone.
struct KeepOptions {
  /// The newest so many. Requires: >= 1.
  TORCH_ARG(int64_t, last) = 3;
  /// Besides these, every one whose step is a multiple. 0: none.
  TORCH_ARG(int64_t, every) = 0;
  /// Besides these, so many with the best metric (those saved with one).
  TORCH_ARG(int64_t, best) = 0;
  TORCH_ARG(bool, lower_is_better) = true;
};

/// How snapshots of a run are written. Ranks: the same everywhere.
struct WriterOptions {
  /// Who writes: marks the snapshots that rotation may remove. 1 to 64 characters of
  /// [A-Za-z0-9_-]; empty: rank 0 makes one up. A resumed run passes the name in the manifest.
  TORCH_ARG(std::string, run);
  TORCH_ARG(KeepOptions, keep);
  /// The snapshot this run was resumed from (its path): never removed. May be empty.
  TORCH_ARG(std::string, loaded_from);
  /// Its step: snapshots of later steps that are in the folder all the same (they cannot be read,
  /// or the run was taken back) are set aside when the run starts: renamed NAME.aside, never
  /// removed.
  TORCH_ARG(std::optional<int64_t>, resumed_step);
  /// Tensors that all ranks share are spread over as many files as there are ranks, but not into
  /// files of less than so many bytes. Requires: >= 1.
  TORCH_ARG(int64_t, min_shard_bytes) = int64_t{4} << 20;
  /// What changes the disk.
  TORCH_ARG(std::shared_ptr<FileSystem>, files) = FileSystem::real();

 public:
  /// Throws Error naming the field.
  void validate() const;
};

}  // namespace lockstep::snapshot
