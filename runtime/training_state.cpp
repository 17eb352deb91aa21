#include <c10/core/GradMode.h>
#include <lockstep/runtime/snapshot_archive.h>
#include <lockstep/runtime/training_state.h>
#include <torch/version.h>

#include <array>

namespace lockstep {
namespace {

constexpr std::array<const char*, 4> kSections = {"data", "trainer", "optimizer", "model"};

std::string versions() {
  return "lockstep " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION;
}

at::Tensor widened(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
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

}  // namespace

std::vector<TrainingState::Weight> TrainingState::weights(const std::vector<at::Tensor>& flats,
                                                          bool to_write) const {
  const std::vector<at::Tensor> masters =
      parameter_views(flats, parts_.reducer.parameters(), parts_.reducer.plans());
  std::vector<Weight> all;
  for (size_t i = 0; i < masters.size(); ++i) {
    all.push_back({&parts_.trainable.parameters[i], masters[i], true});
  }
  for (const auto* list : {&parts_.trainable.frozen, &parts_.buffers}) {
    for (const ModelTensor& entry : *list) {
      const at::Tensor& tensor = entry.tensor;
      all.push_back(
          {&entry, to_write ? parts_.exact.room(tensor) : parts_.exact.stored(tensor), false});
    }
  }
  return all;
}

void TrainingState::take_weights(const std::vector<at::Tensor>& flats,
                                 const std::vector<Weight>& written) {
  const c10::AutoGradMode no_grad(false);
  parts_.arena.take_masters(flats);
  for (const Weight& weight : written) {
    if (!weight.trained) {
      parts_.exact.take(weight.entry->tensor, weight.stored);
    }
  }
}

void TrainingState::visit_weights(StateArchive& archive) {
  const std::vector<at::Tensor> flats =
      archive.saving() ? parts_.arena.whole_masters() : parts_.arena.room_for_masters();
  const std::vector<Weight> all = weights(flats, /*to_write=*/archive.loading());
  for (const Weight& weight : all) {
    const at::Tensor tensor = archive.saving() ? widened(weight.stored) : weight.stored;
    archive.tensor(weight.entry->name, tensor);
    for (const std::string& alias : weight.entry->aliases) {
      archive.tensor(alias, tensor);
    }
  }
  if (archive.loading()) {
    take_weights(flats, all);
  }
}

void TrainingState::visit_averages(StateArchive& archive) {
  if (!parts_.arena.has_averages()) {
    return;
  }
  const std::vector<at::Tensor> flats =
      archive.saving() ? parts_.arena.whole_averages() : parts_.arena.room_for_averages();
  const std::vector<at::Tensor> views =
      parameter_views(flats, parts_.reducer.parameters(), parts_.reducer.plans());
  for (size_t i = 0; i < views.size(); ++i) {
    archive.tensor(parts_.trainable.parameters[i].name + ".ema", views[i]);
  }
  if (archive.loading()) {
    parts_.arena.take_averages(flats);
  }
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
    parts_.updater->visit_state(parts_.reducer, archive);
    visit_averages(archive);
  } else {
    visit_weights(archive);
  }
}

snapshot::Content TrainingState::content() {
  parts_.replicas->require_equal();
  snapshot::Content content;
  content.text("precision", parts_.precision);
  content.text("configuration", parts_.configuration);
  content.text("versions", versions());
  content.text("frozen", frozen_names(parts_.trainable));
  for (const char* section : kSections) {
    SavingArchive archive(content, section);
    visit_section(section, archive);
  }
  add_own(content);
  return content;
}

std::function<void()> TrainingState::match_trainable(const Snapshot& saved) {
  const auto text = saved.manifest().texts.find("frozen");
  if (text == saved.manifest().texts.end() || text->second == frozen_names(parts_.trainable)) {
    return [] {};
  }
  const std::string frozen = kSeparator + text->second + kSeparator;
  const Trainable before = parts_.trainable;
  for (const auto* entries : {&before.parameters, &before.frozen}) {
    for (const ModelTensor& entry : *entries) {
      const std::string name = kSeparator + entry.name + kSeparator;
      entry.tensor.set_requires_grad(frozen.find(name) == std::string::npos);
    }
  }
  parts_.adopt_trainable();
  return [this, before] {
    for (const ModelTensor& entry : before.parameters) {
      entry.tensor.set_requires_grad(true);
    }
    for (const ModelTensor& entry : before.frozen) {
      entry.tensor.set_requires_grad(false);
    }
    parts_.adopt_trainable();
  };
}

void TrainingState::check(const Snapshot& saved) {
  std::string wrong;
  for (const char* section : kSections) {
    const snapshot::SnapshotSection source = saved.section(section);
    CheckingArchive archive(source);
    visit_section(section, archive);
    const snapshot::LoadReport report = archive.finish();
    if (!report.is_complete()) {
      wrong += c10::str("\nsection ", section, "\n", report.text());
    }
  }
  LOCKSTEP_CHECK_CODE(wrong.empty(), ExitCode::snapshot, saved.path(),
                      ": does not fit this model and optimizer; nothing was loaded. Resume with "
                      "those of the saved run, or take over its weights with load_weights()",
                      wrong);
  const snapshot::SnapshotSection data = saved.section("data");
  LoadingArchive places(data);
  parts_.runtime.loaders().check(places);
  parts_.loop.check(saved, parts_.runtime.rank(), parts_.runtime.size());
}

std::vector<std::string> TrainingState::load(const Snapshot& saved) {
  std::vector<std::string> notes;
  const auto compare = [&](const char* what, const std::string& mine) {
    const std::string& theirs = saved.text(what);
    if (theirs != mine) {
      notes.push_back(c10::str(what, " was: ", theirs, "; is now: ", mine));
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
    const snapshot::SnapshotSection source = saved.section(section);
    LoadingArchive archive(source);
    visit_section(section, archive);
  }
  if (const std::string& note = parts_.updater->learning_rates().note(); !note.empty()) {
    notes.push_back(note);
  }
  load_random(saved, notes);
  load_residuals(saved, notes);
  for (const std::vector<std::string>& more :
       {parts_.runtime.loaders().take_notes(),
        parts_.loop.load(saved, parts_.runtime.rank(), parts_.runtime.size())}) {
    notes.insert(notes.end(), more.begin(), more.end());
  }
  return notes;
}

snapshot::LoadReport TrainingState::load_weights(const snapshot::TensorSource& source,
                                                 const snapshot::LoadOptions& options) {
  const auto is_there = [&](const std::string& name) {
    return source.has(options.name_in_source ? options.name_in_source(name) : name);
  };
  std::vector<std::pair<std::string, at::Tensor>> targets;
  const std::vector<at::Tensor> flats = parts_.arena.whole_masters();
  const std::vector<Weight> all = weights(flats, /*to_write=*/true);
  for (const Weight& weight : all) {
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
  snapshot::LoadReport report = snapshot::load_tensors(source, targets, options);
  take_weights(flats, all);
  const c10::AutoGradMode no_grad(false);
  if (parts_.arena.has_averages()) {
    parts_.arena.take_averages(flats);
  }
  return report;
}

}  // namespace lockstep
