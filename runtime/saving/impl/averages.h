#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/snapshot/impl/snapshot_section.h>
#include <lockstep/runtime/data/impl/state_archive.h>
#include <lockstep/runtime/step/impl/training_storage.h>

#include <string>
#include <vector>

namespace lockstep::detail {

// The moving averages of the weights and the buffers, as "parameter.ema" and "buffer.ema". Without
// TrainerOptions::ema the functions do nothing. Ranks: collective with a sharded optimizer.

/// Those of the buffers are not asked for where the archive has none, as in older snapshots.
void visit_averages(const TrainingStorage& storage, StateArchive& archive);

/// After all sections of a snapshot were loaded. If its section `optimizer` has no averages of
/// buffers, they start at the buffers, with a note. Local.
void start_missing_averages(const TrainingStorage& storage,
                            const snapshot::SnapshotSection& optimizer,
                            std::vector<std::string>& notes);

/// Takes the averages from `optimizer`, a section of a snapshot, if it has those of all trainable
/// parameters; else they start at `weights`, the whole flat arrays, and at the buffers among
/// `loaded`. Those of buffers alone that `optimizer` lacks start at the buffers, with a note.
/// `optimizer` may be null.
void load_averages(const TrainingStorage& storage, const snapshot::SnapshotSection* optimizer,
                   const std::vector<at::Tensor>& weights, const std::vector<std::string>& loaded,
                   std::vector<std::string>& notes);

/// For Trainer::averaged(); empty without TrainerOptions::ema.
NamedTensors all_averages(const TrainingStorage& storage);

}  // namespace lockstep::detail
