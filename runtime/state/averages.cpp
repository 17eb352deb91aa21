#include <c10/core/GradMode.h>
#include <lockstep/runtime/state/averages.h>
#include <lockstep/runtime/state/snapshot_archive.h>

namespace lockstep::detail {

void visit_averages(const TrainingStorage& storage, StateArchive& archive) {
  Arena& arena = storage.arena();
  if (!arena.has_averages()) {
    return;
  }
  const std::vector<at::Tensor> flats =
      archive.saving() ? arena.whole_averages() : arena.room_for_averages();
  const std::vector<at::Tensor> views =
      parameter_views(flats, storage.reducer().parameters(), storage.reducer().plans());
  for (size_t i = 0; i < views.size(); ++i) {
    archive.tensor(storage.trainable().parameters[i].name + ".ema", views[i]);
  }
  if (archive.loading()) {
    arena.take_averages(flats);
  }
}

void load_averages(const TrainingStorage& storage, const snapshot::SnapshotSection* optimizer,
                   const std::vector<at::Tensor>& weights) {
  if (!storage.arena().has_averages()) {
    return;
  }
  const c10::AutoGradMode no_grad(false);
  if (optimizer != nullptr) {
    CheckingArchive checking(*optimizer);
    visit_averages(storage, checking);
    const snapshot::LoadReport found = checking.finish();
    if (found.missing.empty() && found.misshapen.empty()) {
      LoadingArchive loading(*optimizer);
      visit_averages(storage, loading);
      return;
    }
  }
  storage.arena().take_averages(weights);
}

}  // namespace lockstep::detail
