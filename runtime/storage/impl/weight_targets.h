#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/checkpointing/snapshot/load.h>

#include <string>
#include <vector>

namespace lockstep::detail {

/// Throws Error (exit code snapshot) that names the first of these parameters or buffers that no
/// snapshot can hold. Parameters are stored as storable_view(), their moments as real_view().
void require_storable(const std::vector<ModelTensor>& entries, bool are_parameters);

/// The names under which a load looks for a parameter or buffer: a tied weight is a target under
/// each of its names that the source has, or under its first name if the source has none.
std::vector<std::string> target_names(const snapshot::TensorSource& source,
                                      const ModelTensor& entry,
                                      const snapshot::LoadOptions& options);

}  // namespace lockstep::detail
