#pragma once

#include <lockstep/checkpointing/snapshot/impl/content.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/runtime/data/impl/state_archive.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/step/impl/training_storage.h>

#include <string>
#include <vector>

namespace lockstep::detail {

/// Visits the moments. With LocalUpdates they differ between ranks: then those of rank 0 are saved
/// for all, together with the state of the rounds. Ranks: saving with LocalUpdates is collective.
void visit_moments(const Runtime& runtime, TrainingStorage& storage, StateArchive& archive);

/// With LocalUpdates: adds this rank's weights and moments, if they may differ between ranks.
/// Local.
void save_local(const TrainingStorage& storage, snapshot::Content& content);

/// With LocalUpdates: loads this rank's weights and moments. On another number of ranks each rank
/// has the weights of the last exchange, and `notes` says so. Call it after the weights, the
/// moments and the state of the rounds were loaded. Local.
void load_local(const Runtime& runtime, TrainingStorage& storage, const Snapshot& saved,
                std::vector<std::string>& notes);

/// With LocalUpdates: throws Error (exit code snapshot), because such a run cannot change its
/// trainable parameters to those of `saved`. The same on every rank.
void require_no_rounds(const TrainingStorage& storage, const Snapshot& saved);

}  // namespace lockstep::detail
