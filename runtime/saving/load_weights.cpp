#include <lockstep/runtime/load_weights.h>
#include <lockstep/runtime/saving/impl/snapshot_search.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/versions.h>
#include <lockstep/runtime/storage/impl/weight_targets.h>

namespace lockstep {

snapshot::LoadReport load_weights(const Model& model, const std::string& path,
                                  const snapshot::LoadOptions& options) {
  const auto source = detail::open_weights(path, Communicator::solo(), options.averaged).weights;
  std::vector<std::pair<std::string, at::Tensor>> targets;
  for (const auto* list : {&model.parameters(), &model.buffers()}) {
    for (const ModelTensor& entry : *list) {
      for (const std::string& name : detail::target_names(*source, entry, options)) {
        targets.emplace_back(name, detail::storable_view(entry.tensor));
      }
    }
  }
  snapshot::LoadReport report = snapshot::load_tensors(*source, targets, options);
  detail::note_writes({});  // LibTorch knows of them
  return report;
}

}  // namespace lockstep
