#include <c10/core/GradMode.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/runtime/saving/impl/averages.h>
#include <lockstep/runtime/saving/impl/training_state.h>
#include <lockstep/runtime/saving/own/generators.h>
#include <lockstep/runtime/saving/own/local_state.h>
#include <lockstep/runtime/saving/own/saved_differences.h>
#include <lockstep/runtime/saving/own/saved_state.h>
#include <lockstep/runtime/saving/own/visit_tensors.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/weight_targets.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <mutex>

namespace lockstep::detail {
namespace {

constexpr std::array<const char*, 4> kSections = {"data", "trainer", "optimizer", "model"};

std::string versions() {
  return "lockstep " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION;
}

constexpr char kSeparator[] = ", ";

std::string frozen_names(const Trainable& trainable) {
  std::string names;
  for (const ModelTensor& entry : trainable.frozen) {
    names += (names.empty() ? "" : kSeparator) + entry.name;
  }
  return names.empty() ? "none" : names;
}

void visit(amp::ScalerState& state, const std::string& prefix, StateArchive& archive) {
  double scale = state.scale;
  archive.real(prefix + "scale", scale);
  state.scale = static_cast<float>(scale);
  const auto number = [&](const char* name, auto& field) {
    int64_t value = field;
    archive.number(prefix + name, value);
    field = static_cast<std::decay_t<decltype(field)>>(value);
  };
  number("growth_tracker", state.growth_tracker);
  number("hysteresis_tracker", state.hysteresis_tracker);
  number("consecutive_skips", state.consecutive_skips);
  number("iteration", state.iteration);
  number("last_overflow", state.last_overflow);
  number("skipped", state.skipped);
}

std::vector<at::Tensor> host_copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.to(at::kCPU, tensor.scalar_type(), false, /*copy=*/true));
  }
  return copies;
}

void write(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& copies) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].copy_(copies[i]);
  }
}

constexpr char kRandom[] = "random";

}  // namespace

void TrainingState::visit_weights(StateArchive& archive) {
  const LocalRounds* rounds = parts_.storage.rounds();
  const std::vector<at::Tensor> anchors = rounds ? rounds->anchors() : std::vector<at::Tensor>();
  visit_trained(parts_.storage, Arena::State::masters, all_names, archive,
                rounds ? &anchors : nullptr);
  visit_untrained(archive);
  if (archive.loading()) {
    parts_.storage.written().forget();
  }
}

void TrainingState::visit_untrained(StateArchive& archive) {
  detail::visit_untrained(trainable().frozen, exact(), archive);
  detail::visit_untrained(parts_.buffers, exact(), archive);
}

void TrainingState::visit_scaler(StateArchive& archive) {
  if (archive.loading() && !with_scaler_) {
    return;
  }
  const auto visit_one = [&](amp::LossScaler& scaler, const std::string& prefix) {
    amp::ScalerState state = scaler.state();
    visit(state, prefix, archive);
    if (archive.loading()) {
      scaler.load(state);
    }
  };
  visit_one(parts_.step.scaler(), "scaler.");
  size_t loss = 0;
  for (amp::LossScaler& scaler : parts_.step.loss_scales().scalers()) {
    visit_one(scaler, c10::str("scaler.loss", loss++, "."));
  }
}

std::vector<at::Tensor> TrainingState::scalers() {
  std::vector<at::Tensor> all = {state_bytes(parts_.step.scaler())};
  for (amp::LossScaler& scaler : parts_.step.loss_scales().scalers()) {
    all.push_back(state_bytes(scaler));
  }
  return all;
}

void TrainingState::visit_section(const std::string& section, StateArchive& archive) {
  if (section == "data") {
    parts_.runtime.loaders().visit_state(archive);
  } else if (section == "trainer") {
    visit_scaler(archive);
    parts_.step.visit_state(archive);
    if (parts_.plateau != nullptr) {
      parts_.plateau->visit_state(archive);
    } else {
      Plateau::pass_over(archive);
    }
  } else if (section == "optimizer") {
    visit_moments(parts_.runtime, parts_.storage, archive);
    visit_averages(parts_.storage, archive);
  } else {
    visit_weights(archive);
  }
}

void TrainingState::require_storable() const {
  detail::require_storable(trainable().parameters, /*are_parameters=*/true);
  detail::require_storable(trainable().frozen, /*are_parameters=*/true);
  detail::require_storable(parts_.buffers, /*are_parameters=*/false);
}

snapshot::Content TrainingState::content() {
  parts_.storage.replicas().require_equal();
  snapshot::Content content;
  content.text("precision", parts_.precision);
  content.text("configuration", parts_.configuration);
  content.text("versions", versions());
  content.text("frozen", frozen_names(trainable()));
  const Agreement agreement(parts_.runtime.control(), ExitCode::snapshot);
  agreement.attempt("the state of this run", [&] {
    for (const char* section : kSections) {
      save_state([this, section](StateArchive& archive) { visit_section(section, archive); },
                 content, section);
    }
    add_own(content);
  });
  return content;
}

std::vector<StateVisit> TrainingState::visits() {
  return {[this](StateArchive& archive) { parts_.step.visit_state(archive); },
          [this](StateArchive& archive) {
            parts_.storage.updater().visit_state(parts_.storage.reducer(), archive);
          },
          [this](StateArchive& archive) { visit_averaged_buffers(parts_.storage, archive); },
          [this](StateArchive& archive) { visit_untrained(archive); }};
}

StateInMemory TrainingState::keep(const Agreement& agreement, const std::string& doing) {
  StateInMemory kept;
  agreement.attempt(doing, [&] {
    kept.loop = parts_.loop.keep();
    kept.scalers = host_copies(scalers());
    kept.arrays = host_copies(arena().own_arrays());
    for (const StateVisit& visit : visits()) {
      StateCopy& copy = kept.named.emplace_back(std::nullopt, /*on_host=*/true);
      copy.take(visit);
      copy.require_taken();
    }
    if (parts_.plateau != nullptr) {
      kept.plateau = *parts_.plateau;
    }
    kept.random = states_of_generators(parts_.runtime.device());
  });
  return kept;
}

void TrainingState::give_back(StateInMemory& kept) {
  const c10::AutoGradMode no_grad(false);
  arena().wait_for_node();  // a rank may still read the weights
  write(scalers(), kept.scalers);
  write(arena().own_arrays(), kept.arrays);
  arena().end_taking();
  const std::vector<StateVisit> visits = this->visits();
  for (size_t i = 0; i < visits.size(); ++i) {
    kept.named[i].give_back(visits[i]);
  }
  parts_.storage.written().forget();
  if (kept.plateau) {
    *parts_.plateau = *kept.plateau;
  }
  set_states_of_generators(parts_.runtime.device(), kept.random);
  parts_.loop.give_back(kept.loop);
  parts_.step.seed_leaves();
  arena().wait_for_node();
}

std::function<void()> TrainingState::match_trainable(const Snapshot& saved) {
  const auto text = saved.manifest().texts.find("frozen");
  if (text == saved.manifest().texts.end() || text->second == frozen_names(trainable())) {
    return [] {};
  }
  require_no_rounds(parts_.storage, saved);
  const std::string frozen = kSeparator + text->second + kSeparator;
  const Trainable before = trainable();
  for (const auto* entries : {&before.parameters, &before.frozen}) {
    for (const ModelTensor& entry : *entries) {
      const std::string name = kSeparator + entry.name + kSeparator;
      entry.tensor.set_requires_grad(frozen.find(name) == std::string::npos);
    }
  }
  const auto mark_as_before = [before] {
    for (const ModelTensor& entry : before.parameters) {
      entry.tensor.set_requires_grad(true);
    }
    for (const ModelTensor& entry : before.frozen) {
      entry.tensor.set_requires_grad(false);
    }
  };
  try {
    parts_.adopt_trainable();
  } catch (...) {
    mark_as_before();
    throw;
  }
  return [this, mark_as_before] {
    mark_as_before();
    parts_.adopt_trainable();
  };
}

void TrainingState::check(const Snapshot& saved) {
  std::string wrong;
  for (const char* section : kSections) {
    const snapshot::SnapshotSection source = saved.section(section);
    const snapshot::LoadReport report =
        check_state([&](StateArchive& archive) { visit_section(section, archive); }, source);
    if (!report.is_complete()) {
      wrong += c10::str("\nsection ", section, "\n", report.text());
    }
  }
  LOCKSTEP_CHECK_CODE(wrong.empty(), ExitCode::snapshot, saved.path(),
                      ": does not fit this model and optimizer; nothing was loaded. Resume with "
                      "those of the saved run, take over its weights with load_weights(), or "
                      "remove the snapshot",
                      wrong);
  const std::string ties = other_ties(saved, trainable());
  LOCKSTEP_CHECK_CODE(
      ties.empty(), ExitCode::snapshot, saved.path(),
      ": other weights are tied than in this model; nothing was loaded. Resume with "
      "the model of the saved run, or take over its weights with load_weights()",
      ties);
  const int64_t updates = saved.section("trainer").read("updates").item<int64_t>();
  LOCKSTEP_CHECK_CODE(updates == saved.manifest().step, ExitCode::snapshot, saved.path(), ": has ",
                      updates, " updates, but its manifest is of step ", saved.manifest().step,
                      "; it was changed, resume from an older one");
  load_state([&](StateArchive& archive) { parts_.runtime.loaders().check(archive); },
             saved.section("data"));
  parts_.loop.check(saved, parts_.runtime.rank(), parts_.runtime.size());
}

std::vector<std::string> TrainingState::load(const Snapshot& saved) {
  std::vector<std::string> notes;
  const auto compare = [&](const char* what, const std::string& mine) {
    const std::string& theirs = saved.text(what);
    if (theirs != mine) {
      notes.push_back(c10::str(what, " was: ", items_without(theirs, mine),
                               "; is now: ", items_without(mine, theirs)));
    }
    return theirs == mine;
  };
  with_scaler_ = compare("precision", parts_.precision);
  if (!with_scaler_) {
    notes.emplace_back("the loss scale starts anew, since the precision is another");
  }
  compare("configuration", parts_.configuration);
  compare("versions", versions());
  for (const char* section : kSections) {
    load_state([&](StateArchive& archive) { visit_section(section, archive); },
               saved.section(section));
  }
  start_missing_averages(parts_.storage, saved.section("optimizer"), notes);
  if (const std::string& note = parts_.storage.updater().learning_rates().note(); !note.empty()) {
    notes.push_back(note);
  }
  load_local(parts_.runtime, parts_.storage, saved, notes);
  load_random(saved, notes);
  for (const std::vector<std::string>& more :
       {parts_.runtime.loaders().take_notes(),
        parts_.loop.load(saved, parts_.runtime.rank(), parts_.runtime.size())}) {
    notes.insert(notes.end(), more.begin(), more.end());
  }
  return notes;
}

snapshot::TensorLoad TrainingState::match(const OpenedWeights& source,
                                          const snapshot::LoadOptions& options) const {
  std::vector<snapshot::TensorLoad::Target> targets;
  const auto add = [&](const ModelTensor& entry, at::IntArrayRef sizes, at::ScalarType dtype,
                       const std::string& odd) {
    for (const std::string& name : target_names(*source.weights, entry, options)) {
      targets.push_back({name, sizes.vec(), dtype, odd});
    }
  };
  std::vector<at::Tensor> outlines;
  for (size_t b = 0; b < parts_.storage.reducer().plans().size(); ++b) {
    outlines.push_back(arena().outline(Arena::State::masters, b));
  }
  const std::vector<at::Tensor> masters = parameter_views(
      outlines, parts_.storage.reducer().parameters(), parts_.storage.reducer().plans());
  for (size_t i = 0; i < masters.size(); ++i) {
    const at::Tensor stored = storable_view(masters[i]);
    add(trainable().parameters[i], stored.sizes(), stored.scalar_type(), "");
  }
  for (const auto* list : {&trainable().frozen, &parts_.buffers}) {
    for (const ModelTensor& entry : *list) {
      const std::string odd = why_not_plain(entry.tensor);
      const at::Tensor stored = odd.empty() ? storable_view(entry.tensor) : entry.tensor;
      add(entry, odd.empty() ? stored.sizes() : at::IntArrayRef(),
          at::isReducedFloatingType(stored.scalar_type()) ? at::kFloat : stored.scalar_type(), odd);
    }
  }
  return {*source.weights, targets, options};
}

void TrainingState::load_weights(const snapshot::TensorLoad& load,
                                 const snapshot::SnapshotSection* optimizer,
                                 std::vector<std::string>& notes) {
  const c10::AutoGradMode no_grad(false);
  const auto fill = [&](const ModelTensor& entry, const at::Tensor& values) {
    for (const std::string& alias : entry.aliases) {
      load.copy(alias, storable_view(values));
    }
    load.copy(entry.name, storable_view(values));
  };
  const bool averages = arena().has_averages();
  const bool averages_are_saved =
      averages && optimizer != nullptr && has_averages(parts_.storage, *optimizer);
  LocalRounds* rounds = parts_.storage.rounds();
  const std::vector<BucketPlan>& plans = parts_.storage.reducer().plans();
  for (size_t b = 0; b < plans.size(); ++b) {
    const at::Tensor flat = arena().filled_room(b);
    if (rounds != nullptr) {
      flat.copy_(rounds->anchors()[b]);
    }
    for (const Slot& slot : plans[b].slots) {
      const ModelTensor& entry = trainable().parameters[static_cast<size_t>(slot.parameter)];
      fill(entry, shaped_view(flat, slot.offset, entry.tensor).detach());
    }
    arena().take(Arena::State::masters, b, flat);
    if (averages && !averages_are_saved) {
      arena().take(Arena::State::averages, b, flat);
    }
  }
  arena().end_taking();
  for (const auto* list : {&trainable().frozen, &std::as_const(parts_.buffers)}) {
    for (const ModelTensor& entry : *list) {
      const at::Tensor values = exact().room(entry.tensor);
      fill(entry, values);
      exact().take(entry.tensor, values);
    }
  }
  parts_.storage.written().forget();
  if (rounds != nullptr) {
    rounds->restart();
  }
  if (averages_are_saved) {
    load_averages(parts_.storage, *optimizer, notes);
  } else if (averages) {
    parts_.storage.averaged_buffers().restart(load.report().loaded);
  }
}

void TrainingState::add_own(snapshot::Content& content) {
  for (const auto& [name, generator] : generators(parts_.runtime.device())) {
    content.add_own(kRandom, name, generator.get_state());
  }
  save_local(parts_.storage, content);
  parts_.loop.save(content);
}

void TrainingState::load_random(const Snapshot& saved, std::vector<std::string>& notes) {
  const int ranks = parts_.runtime.size();
  if (parts_.step.leaves().on()) {
    parts_.step.seed_leaves();
    return;
  }
  if (saved.manifest().world_size != ranks) {
    parts_.runtime.seed_ranks(parts_.step.updates());
    notes.push_back(c10::str("saved by ", saved.manifest().world_size, " ranks, goes on with ",
                             ranks, ": each gets a new stream of random numbers"));
    return;
  }
  for (auto& [name, generator] : generators(parts_.runtime.device())) {
    const std::vector<std::string> names = saved.own_names(kRandom, parts_.runtime.rank());
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(saved.read_own(kRandom, parts_.runtime.rank(), name));
    } else {
      notes.push_back("the random numbers of " + name + " start anew; none were saved");
    }
  }
}

}  // namespace lockstep::detail
