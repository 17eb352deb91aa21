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

/// Visits all averages. Skips those of buffers if the archive has none, as in older snapshots.
void visit_averages(const TrainingStorage& storage, StateArchive& archive);
/// Visits those of buffers alone. Local.
void visit_averaged_buffers(const TrainingStorage& storage, StateArchive& archive);

/// Call it after all sections of a snapshot were loaded. If its section `optimizer` has no averages
/// of buffers, they start at the buffers, with a note. Local.
void start_missing_averages(const TrainingStorage& storage,
                            const snapshot::SnapshotSection& optimizer,
                            std::vector<std::string>& notes);

/// True if `optimizer` (a section of a snapshot) has the averages of all trainable parameters.
/// Local.
bool has_averages(const TrainingStorage& storage, const snapshot::SnapshotSection& optimizer);
/// Loads them. If those of buffers are missing, these start at the buffers, with a note. Local.
void load_averages(const TrainingStorage& storage, const snapshot::SnapshotSection& optimizer,
                   std::vector<std::string>& notes);

/// All averages, for Trainer::averaged(). Empty without TrainerOptions::ema.
NamedTensors all_averages(const TrainingStorage& storage);

}  // namespace lockstep::detail
