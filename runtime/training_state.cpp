#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <lockstep/runtime/snapshot_archive.h>
#include <lockstep/runtime/training_state.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <mutex>

namespace lockstep {
namespace {

/// In the order in which they are loaded: those that may still object come first.
constexpr std::array<const char*, 4> kSections = {"data", "trainer", "optimizer", "model"};
constexpr char kRandom[] = "random";

std::string versions() {
  return "lockstep " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION;
}

/// This rank's random generators by name.
std::vector<std::pair<std::string, at::Generator>> generators(c10::Device device) {
  std::vector<std::pair<std::string, at::Generator>> all = {
      {"cpu", at::detail::getDefaultCPUGenerator()}};
  if (device.is_cuda()) {
    all.emplace_back("cuda", at::globalContext().defaultGenerator(device));
  }
  return all;
}

at::Tensor widened(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

void visit(amp::ScalerState& state, StateArchive& archive) {
  double scale = state.scale;
  archive.real("scaler.scale", scale);
  state.scale = static_cast<float>(scale);
  const auto number = [&](const char* name, auto& field) {
    int64_t value = field;
    archive.number(std::string("scaler.") + name, value);
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

std::vector<TrainingState::Weight> TrainingState::weights() const {
  const std::vector<at::Tensor> masters = master_views(parts_.reducer, parts_.arena);
  std::vector<Weight> all;
  for (size_t i = 0; i < masters.size(); ++i) {
    all.push_back({&parts_.trainable.parameters[i], masters[i]});
  }
  for (const ModelTensor& entry : parts_.trainable.frozen) {
    all.push_back({&entry, entry.tensor.detach()});
  }
  for (const ModelTensor& entry : parts_.buffers) {
    all.push_back({&entry, entry.tensor.detach()});
  }
  return all;
}

void TrainingState::visit_weights(StateArchive& archive) {
  for (const Weight& weight : weights()) {
    const at::Tensor tensor = archive.saving() ? widened(weight.stored) : weight.stored;
    archive.tensor(weight.entry->name, tensor);
    for (const std::string& alias : weight.entry->aliases) {
      archive.tensor(alias, tensor);
    }
  }
  if (archive.loading()) {
    refresh_model();
  }
}

/// The model's weights from the masters just written.
void TrainingState::refresh_model() {
  const c10::AutoGradMode no_grad(false);
  for (const Arena::Bucket& bucket : parts_.arena.buckets()) {
    if (bucket.masters.defined() && !bucket.masters.is_same(bucket.weights)) {
      bucket.weights.copy_(bucket.masters);
    }
  }
}

void TrainingState::visit_scaler(StateArchive& archive) {
  if (archive.loading() && !with_scaler_) {
    return;
  }
  amp::ScalerState state = parts_.step.scaler().state();
  visit(state, archive);
  if (archive.loading()) {
    parts_.step.scaler().load(state);
  }
}

void TrainingState::visit_section(const std::string& section, StateArchive& archive) {
  if (section == "data") {
    parts_.runtime.loaders().visit_state(archive);
  } else if (section == "trainer") {
    visit_scaler(archive);
    parts_.step.visit_state(archive);
  } else if (section == "optimizer") {
    parts_.updater.visit_state(parts_.reducer, archive);
  } else {
    visit_weights(archive);
  }
}

snapshot::Content TrainingState::content() {
  snapshot::Content content;
  content.text("precision", parts_.precision);
  content.text("configuration", parts_.configuration);
  content.text("versions", versions());
  for (const char* section : kSections) {
    SavingArchive archive(content, section);
    visit_section(section, archive);
  }
  for (const auto& [name, generator] : generators(parts_.runtime.device())) {
    content.add_own(kRandom, name, generator.get_state());
  }
  return content;
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
  load_random(saved, notes);
  return notes;
}

void TrainingState::load_random(const Snapshot& saved, std::vector<std::string>& notes) {
  const int ranks = parts_.runtime.size();
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

snapshot::LoadReport TrainingState::load_weights(const snapshot::TensorSource& source,
                                                 const snapshot::LoadOptions& options) {
  const auto is_there = [&](const std::string& name) {
    return source.has(options.name_in_source ? options.name_in_source(name) : name);
  };
  std::vector<std::pair<std::string, at::Tensor>> targets;
  for (const Weight& weight : weights()) {
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
  refresh_model();
  return report;
}

}  // namespace lockstep
