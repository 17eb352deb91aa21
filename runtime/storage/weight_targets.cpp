#include <lockstep/checkpointing/snapshot/impl/safetensors_output.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/weight_targets.h>

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

std::vector<std::pair<std::string, at::Tensor>> weight_targets(
    const snapshot::TensorSource& source, const std::vector<NamedWeight>& weights,
    const snapshot::LoadOptions& options) {
  const auto is_there = [&](const std::string& name) {
    return source.has(options.name_in_source ? options.name_in_source(name) : name);
  };
  std::vector<std::pair<std::string, at::Tensor>> targets;
  for (const NamedWeight& weight : weights) {
    const size_t before = targets.size();
    for (const std::string& alias : weight.entry->aliases) {
      if (is_there(alias)) {
        targets.emplace_back(alias, weight.stored);
      }
    }
    if (targets.size() == before || is_there(weight.entry->name)) {
      targets.emplace_back(weight.entry->name, weight.stored);
    }
  }
  return targets;
}

}  // namespace lockstep::detail
