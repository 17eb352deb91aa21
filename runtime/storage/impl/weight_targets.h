#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/checkpointing/snapshot/load.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// A parameter or buffer, and the tensor that its saved value is copied to.
struct NamedWeight {
  const ModelTensor* entry;
  at::Tensor stored;
};

/// Throws Error (exit code snapshot) that names the first of these parameters or buffers that no
/// snapshot can hold. Parameters are stored as storable_view(), their moments as real_view().
void require_storable(const std::vector<ModelTensor>& entries, bool are_parameters);

/// The targets of load_tensors() for these weights. A tied weight is a target under each of its
/// names that the source has, or under its first name if the source has none.
std::vector<std::pair<std::string, at::Tensor>> weight_targets(
    const snapshot::TensorSource& source, const std::vector<NamedWeight>& weights,
    const snapshot::LoadOptions& options);

}  // namespace lockstep::detail
