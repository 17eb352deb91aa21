#include <c10/core/GradMode.h>
#include <lockstep/checkpointing/snapshot/impl/averaged_model.h>
#include <lockstep/runtime/saving/impl/averages.h>
#include <lockstep/runtime/saving/own/saved_state.h>
#include <lockstep/runtime/saving/own/visit_tensors.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

constexpr const char* kKind = snapshot::kAverage;

template <typename Source>
bool has_any(const NamedTensors& averages, const Source& source) {
  return std::any_of(averages.begin(), averages.end(),
                     [&](const auto& each) { return source.has(each.first + kKind); });
}

}  // namespace

void visit_averages(const TrainingStorage& storage, StateArchive& archive) {
  if (!storage.arena().has_averages()) {
    return;
  }
  visit_trained(
      storage, Arena::State::averages,
      [](const ModelTensor& entry) { return std::vector<std::string>{entry.name + kKind}; },
      archive);
  visit_averaged_buffers(storage, archive);
}

void visit_averaged_buffers(const TrainingStorage& storage, StateArchive& archive) {
  const NamedTensors buffers = storage.averaged_buffers().named();
  if (archive.saving() || has_any(buffers, archive)) {
    for (const auto& [name, average] : buffers) {
      archive.tensor(name + kKind, average);
    }
  }
}

void start_missing_averages(const TrainingStorage& storage,
                            const snapshot::SnapshotSection& optimizer,
                            std::vector<std::string>& notes) {
  const NamedTensors buffers = storage.averaged_buffers().named();
  if (!buffers.empty() && !has_any(buffers, optimizer)) {
    storage.averaged_buffers().restart();
    notes.emplace_back("the moving averages of the buffers start at the buffers: none were saved");
  }
}

bool has_averages(const TrainingStorage& storage, const snapshot::SnapshotSection& optimizer) {
  const snapshot::LoadReport found =
      check_state([&](StateArchive& archive) { visit_averages(storage, archive); }, optimizer);
  return found.missing.empty() && found.misshapen.empty();
}

void load_averages(const TrainingStorage& storage, const snapshot::SnapshotSection& optimizer,
                   std::vector<std::string>& notes) {
  load_state([&](StateArchive& archive) { visit_averages(storage, archive); }, optimizer);
  start_missing_averages(storage, optimizer, notes);
}

NamedTensors all_averages(const TrainingStorage& storage) {
  if (!storage.arena().has_averages()) {
    return {};
  }
  NamedTensors all = storage.named(storage.arena().whole_averages());
  const NamedTensors buffers = storage.averaged_buffers().named();
  all.insert(all.end(), buffers.begin(), buffers.end());
  return all;
}

}  // namespace lockstep::detail
