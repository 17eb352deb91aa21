#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/runtime/data/impl/state_archive.h>
#include <lockstep/runtime/step/impl/training_storage.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// The names under which a tensor of the model is saved.
using NamesOf = std::function<std::vector<std::string>(const ModelTensor&)>;

/// Its name and those of the parameters that are tied to it.
std::vector<std::string> all_names(const ModelTensor& entry);

/// Visits the masters or the averages of all trained parameters. Bucket by bucket, so that a rank
/// has no more than one whole array of a sharded state at a time. 16-bit values are saved in fp32.
/// `held`: the values to save if not those of the arena, whole. Collective while saving, if
/// sharded; while loading into shared weights, TrainingStorage::arena().wait_for_node() must
/// follow.
void visit_trained(const TrainingStorage& storage, Arena::State state, const NamesOf& names,
                   StateArchive& archive, const std::vector<at::Tensor>* held = nullptr);

/// Visits the exact values of frozen parameters, or buffers. Local.
void visit_untrained(const std::vector<ModelTensor>& entries, ExactValues& exact,
                     StateArchive& archive);

}  // namespace lockstep::detail
