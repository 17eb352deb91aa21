#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/tensor_source.h>
#include <lockstep/checkpointing/snapshot/newest.h>
#include <lockstep/collectives/communicator.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::detail {

// Finds what a path names: a snapshot, the folder of a run, or weights from elsewhere. Only rank 0
// lists a folder, so that all ranks use the same listing. Ranks: the functions with a communicator
// are collective. Errors: the same Error on every rank.

/// All lines in one text, each on an indented line of its own.
std::string joined(const std::vector<std::string>& lines);

/// True if `folder` holds snapshots.
bool has_snapshots(const std::string& folder, const Communicator& ranks);

/// The snapshot at `path`, or the newest one in that folder, with every byte checked; may be none.
snapshot::Newest find_snapshot(const std::string& path, const Communicator& ranks);

/// The weights at `path`: of a snapshot, of the newest snapshot of a run, or in safetensors files.
/// `optimizer`: that section of the snapshot, which holds the moving averages; else null. With
/// `averaged`, the weights are the moving averages, and `optimizer` is null. Throws Error if there
/// are none.
struct OpenedWeights {
  std::unique_ptr<snapshot::TensorSource> weights;
  std::unique_ptr<snapshot::SnapshotSection> optimizer;
};
OpenedWeights open_weights(const std::string& path, const Communicator& ranks, bool averaged);

}  // namespace lockstep::detail
