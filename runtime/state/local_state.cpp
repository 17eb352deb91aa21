#include <c10/core/GradMode.h>
#include <lockstep/runtime/state/local_state.h>
#include <lockstep/runtime/state/rank_archives.h>

namespace lockstep::detail {
namespace {

constexpr char kSection[] = "local";
constexpr char kWeight[] = ".local";

}  // namespace

void visit_moments(const Runtime& runtime, TrainingStorage& storage, StateArchive& archive) {
  LocalRounds* rounds = storage.rounds();
  if (rounds != nullptr && archive.saving()) {
    FirstRankArchive first(archive, runtime.communicator(), runtime.control(), runtime.device());
    storage.updater().visit_state(storage.reducer(), first);
  } else {
    storage.updater().visit_state(storage.reducer(), archive);
  }
  if (rounds != nullptr) {
    rounds->visit_state(archive);
  }
}

void save_local(const TrainingStorage& storage, snapshot::Content& content) {
  const LocalRounds* rounds = storage.rounds();
  if (rounds == nullptr || !rounds->ranks_differ()) {
    return;
  }
  SavingOwnArchive own(content, kSection);
  for (const auto& [name, master] : storage.named(storage.arena().whole_masters())) {
    own.tensor(name + kWeight, master);
  }
  storage.updater().visit_state(storage.reducer(), own);
}

void load_local(const Runtime& runtime, TrainingStorage& storage, const Snapshot& saved,
                std::vector<std::string>& notes) {
  LocalRounds* rounds = storage.rounds();
  if (rounds == nullptr) {
    return;
  }
  const int64_t updates_of_round = rounds->updates_of_round();
  rounds->restart();
  if (saved.own_names(kSection, 0).empty()) {
    return;  // all ranks were equal
  }
  if (saved.manifest().world_size != runtime.size()) {
    notes.push_back(c10::str("local updates: saved by ", saved.manifest().world_size,
                             " ranks, goes on with ", runtime.size(), ": each has the weights of ",
                             "the last exchange (", updates_of_round,
                             " updates after it are lost) and the moments of rank 0"));
    return;
  }
  const c10::AutoGradMode no_grad(false);
  LoadingOwnArchive own(saved, kSection, runtime.rank());
  const std::vector<at::Tensor> flats = storage.arena().room_for_masters();
  for (const auto& [name, master] : storage.named(flats)) {
    own.tensor(name + kWeight, master);
  }
  storage.arena().take_masters(flats);
  storage.updater().visit_state(storage.reducer(), own);
  rounds->go_on(updates_of_round);
}

}  // namespace lockstep::detail
