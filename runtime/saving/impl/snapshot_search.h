#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/tensor_source.h>
#include <lockstep/checkpointing/snapshot/newest.h>
#include <lockstep/collectives/communicator.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::detail {

// What a path names: a snapshot, the folder of a run, or weights from elsewhere. Rank 0 looks,
// since ranks must not look at a folder at different times. Ranks: the functions with a
// communicator are collective. Errors: the same Error on every rank.

/// The lines, each below the one before and indented.
std::string joined(const std::vector<std::string>& lines);

/// True if `folder` holds snapshots.
bool has_snapshots(const std::string& folder, const Communicator& ranks);

/// The snapshot at `path`, or the newest in that folder, with every byte checked; none if there is
/// none.
snapshot::Newest find_snapshot(const std::string& path, const Communicator& ranks);

/// The weights at `path`: of a snapshot, of the newest snapshot of a run, or in safetensors files.
/// `optimizer`: of the snapshot, where the moving averages are; else null.
struct OpenedWeights {
  std::unique_ptr<snapshot::TensorSource> weights;
  std::unique_ptr<snapshot::SnapshotSection> optimizer;
};
OpenedWeights open_weights(const std::string& path, const Communicator& ranks);

}  // namespace lockstep::detail
