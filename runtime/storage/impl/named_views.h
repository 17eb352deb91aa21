#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/runtime/storage/impl/bucket_plan.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Views of flat arrays that are laid out as `plans`, by parameter name.
NamedTensors named_views(const std::vector<at::Tensor>& flats,
                         const std::vector<ModelTensor>& parameters,
                         const std::vector<BucketPlan>& plans);

/// Copies to each tensor of `views` the tensor of the same name in `before`, else that in `fresh`.
void write(const NamedTensors& views, const std::map<std::string, at::Tensor>& before,
           const std::map<std::string, at::Tensor>& fresh);

}  // namespace lockstep::detail
