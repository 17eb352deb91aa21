#include <c10/core/GradMode.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/saving/own/local_state.h>
#include <lockstep/runtime/saving/own/saved_state.h>
#include <lockstep/runtime/storage/impl/flat.h>

namespace lockstep::detail {
namespace {

constexpr char kLocalSection[] = "local";
constexpr char kWeight[] = ".local";
constexpr char kUpdatesOfRound[] = "round.updates";
constexpr char kOuterMomentum[] = ".outer_momentum";

/// For a run without local updates: visits the state of rounds in a snapshot, so that check_state()
/// does not report it as unexpected.
void pass_over_rounds(const std::vector<ModelTensor>& parameters, StateArchive& archive) {
  if (archive.pass() != StateArchive::Pass::check || !archive.has(kUpdatesOfRound)) {
    return;
  }
  int64_t updates = 0;
  archive.number(kUpdatesOfRound, updates);
  for (const ModelTensor& entry : parameters) {
    if (const std::string name = entry.name + kOuterMomentum; archive.has(name)) {
      archive.tensor(name, storable_view(entry.tensor.detach()));
    }
  }
}

/// This rank's weights, in `flats`, and moments.
void visit_local(const TrainingStorage& storage, const std::vector<at::Tensor>& flats,
                 StateArchive& archive) {
  for (const auto& [name, master] : storage.named(flats)) {
    archive.tensor(name + kWeight, storable_view(master));
  }
  storage.updater().visit_state(storage.reducer(), archive);
}

/// Passes the state of `visit` to `archive`, with rank 0's tensors on every rank. Collective.
void visit_first_rank(const StateVisit& visit, const Runtime& runtime, StateArchive& archive) {
  StateArchive first(archive.pass(), [&](const StateEntry& entry) {
    require_no_part(entry);
    if (entry.kind != StateEntry::Kind::tensor) {
      archive.tensor(entry.name, entry.place);
      return;
    }
    const at::Tensor copy = entry.place.clone();
    if (copy.numel() > 0) {
      const Communicator& ranks =
          copy.device() == runtime.device() ? runtime.communicator() : runtime.control();
      ranks.broadcast(flat_alias(copy, entry.name)).wait();
    }
    archive.tensor(entry.name, copy);
  });
  visit(first);
}

}  // namespace

void visit_moments(const Runtime& runtime, TrainingStorage& storage, StateArchive& archive) {
  LocalRounds* rounds = storage.rounds();
  const auto visit = [&](StateArchive& each) {
    storage.updater().visit_state(storage.reducer(), each);
  };
  if (rounds != nullptr && archive.saving()) {
    visit_first_rank(visit, runtime, archive);
  } else {
    visit(archive);
  }
  if (rounds != nullptr) {
    rounds->visit_state(archive);
  } else {
    pass_over_rounds(storage.trainable().parameters, archive);
  }
}

void save_local(const TrainingStorage& storage, snapshot::Content& content) {
  const LocalRounds* rounds = storage.rounds();
  if (rounds == nullptr || !rounds->ranks_differ()) {
    return;
  }
  const std::vector<at::Tensor> flats = storage.arena().whole_masters();
  save_own_state([&](StateArchive& archive) { visit_local(storage, flats, archive); }, content,
                 kLocalSection);
}

void load_local(const Runtime& runtime, TrainingStorage& storage, const Snapshot& saved,
                std::vector<std::string>& notes) {
  LocalRounds* rounds = storage.rounds();
  if (rounds == nullptr) {
    if (!saved.own_names(kLocalSection, 0).empty()) {
      notes.emplace_back(
          "local updates: the saved run had them, this one has not: each rank has the weights of "
          "the last exchange and the moments of rank 0");
    }
    return;
  }
  const int64_t updates_of_round = rounds->updates_of_round();
  rounds->restart();
  if (saved.own_names(kLocalSection, 0).empty()) {
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
  const std::vector<at::Tensor> flats = storage.arena().room_for_masters();
  load_own_state([&](StateArchive& archive) { visit_local(storage, flats, archive); }, saved,
                 kLocalSection, runtime.rank());
  storage.arena().take_masters(flats);
  rounds->go_on(updates_of_round);
}

void require_no_rounds(const TrainingStorage& storage, const Snapshot& saved) {
  LOCKSTEP_CHECK_CODE(storage.rounds() == nullptr, ExitCode::snapshot, saved.path(),
                      ": was saved with other trainable parameters, and those of a run with "
                      "local_updates cannot change; nothing was loaded. Freeze those of the saved "
                      "run before the Trainer is made (",
                      saved.text("frozen"), "), or take over its weights with load_weights()");
}

}  // namespace lockstep::detail
