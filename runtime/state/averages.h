#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/snapshot/snapshot_section.h>
#include <lockstep/runtime/state/training_storage.h>
#include <lockstep/runtime/state_archive.h>

#include <vector>

namespace lockstep::detail {

// The moving averages of the weights, as "parameter.ema". Without TrainerOptions::ema both
// functions do nothing. Ranks: collective with a sharded optimizer.

void visit_averages(const TrainingStorage& storage, StateArchive& archive);

/// Takes the averages from `optimizer`, a section of a snapshot, if it has those of all trainable
/// parameters; else they start at `weights`, the whole flat arrays. `optimizer` may be null.
void load_averages(const TrainingStorage& storage, const snapshot::SnapshotSection* optimizer,
                   const std::vector<at::Tensor>& weights);

}  // namespace lockstep::detail
