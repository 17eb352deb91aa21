#include <lockstep/checkpointing/snapshot/impl/safetensors_output.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/weight_targets.h>

#include <algorithm>
#include <iterator>

namespace lockstep::detail {

void require_storable(const std::vector<ModelTensor>& entries, bool are_parameters) {
  const std::string longest_kind(32, '.');  // of a StateArchive
  for (const ModelTensor& entry : entries) {
    std::vector<std::string> names = entry.aliases;
    names.push_back(entry.name);
    const at::Tensor held = entry.tensor.detach();
    for (const std::string& name : names) {
      snapshot::require_storable(name, are_parameters ? storable_view(held) : held);
    }
    snapshot::require_storable(entry.name + longest_kind, are_parameters ? real_view(held) : held);
  }
}

std::vector<std::string> target_names(const snapshot::TensorSource& source,
                                      const ModelTensor& entry,
                                      const snapshot::LoadOptions& options) {
  const auto is_there = [&](const std::string& name) {
    return source.has(options.name_in_source ? options.name_in_source(name) : name);
  };
  std::vector<std::string> names;
  std::copy_if(entry.aliases.begin(), entry.aliases.end(), std::back_inserter(names), is_there);
  if (names.empty() || is_there(entry.name)) {
    names.push_back(entry.name);
  }
  return names;
}

}  // namespace lockstep::detail
