#include <lockstep/runtime/state/weight_targets.h>

namespace lockstep::detail {

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
