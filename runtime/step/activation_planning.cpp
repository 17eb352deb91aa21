#include <lockstep/amp/sync_batch_norm.h>
#include <lockstep/checkpointing/activation/impl/planned_sequential.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/step/impl/activation_planning.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <sstream>

namespace lockstep::detail {

namespace {

using torch::nn::SequentialImpl;

constexpr int64_t watched_micro_batches = 3;

void find_sequentials(torch::nn::Module& module, const std::string& name,
                      std::vector<std::pair<std::string, SequentialImpl*>>& found) {
  if (auto* sequential = dynamic_cast<SequentialImpl*>(&module)) {
    found.emplace_back(name.empty() ? "the model" : name, sequential);
    return;
  }
  for (const auto& child : module.named_children()) {
    find_sequentials(*child.value(), name.empty() ? child.key() : name + "." + child.key(), found);
  }
}

/// Null if there is none, or several.
SequentialImpl* sequential_if_only(const Model& model) {
  std::vector<std::pair<std::string, SequentialImpl*>> found;
  if (model.module() != nullptr) {
    find_sequentials(*model.module(), "", found);
  }
  return found.size() == 1 && !found[0].second->is_empty() ? found[0].second : nullptr;
}

SequentialImpl* only_sequential(const Model& model) {
  constexpr const char* advice =
      "; list its blocks as a PlannedChain that forward() calls, and give that to "
      "TrainerOptions().activation_chain()";
  LOCKSTEP_CHECK(model.module() != nullptr,
                 "activation_budget needs a torch::nn model, this is a torch::jit::Module");
  std::vector<std::pair<std::string, SequentialImpl*>> found;
  find_sequentials(*model.module(), "", found);
  LOCKSTEP_CHECK(!found.empty(), "activation_budget: the model has no torch::nn::Sequential",
                 advice);
  std::string names;
  for (const auto& [name, sequential] : found) {
    names += (names.empty() ? "" : ", ") + name;
  }
  LOCKSTEP_CHECK(found.size() == 1, "activation_budget: the model has ", found.size(),
                 " Sequentials (", names, ")", advice);
  LOCKSTEP_CHECK(!found[0].second->is_empty(), "activation_budget: ", names, " is empty");
  return found[0].second;
}

/// Each rank plans by its own clock, so what is recomputed must not communicate.
bool has_collectives(const Model& model) {
  return !name_of_sync_batchnorm(model).empty();
}

}  // namespace

void require_activation_chain(const TrainerOptions& options, const Model& model) {
  if (!options.activation_budget().is_unlimited() && options.activation_chain().is_empty()) {
    only_sequential(model);
  }
  const ActivationBudget& budget = options.activation_budget();
  const std::string synchronised = name_of_sync_batchnorm(model);
  LOCKSTEP_CHECK(budget.is_unlimited() || budget.is_automatic() || synchronised.empty(),
                 "activation_budget(", budget.text(), "): the buffer ", synchronised,
                 " belongs to a layer of convert_sync_batchnorm(), which communicates when it is "
                 "recomputed, and each rank plans by its own clock; use the budget \"automatic\"");
  LOCKSTEP_CHECK(options.memory().is_unlimited() || options.activation_chain().is_empty() ||
                     synchronised.empty(),
                 "memory(", options.memory().text(), "): the buffer ", synchronised,
                 " belongs to a layer of convert_sync_batchnorm(), which communicates when it is "
                 "recomputed, and each rank plans by its own clock; leave activation_chain out");
}

ActivationPlanning::ActivationPlanning(const TrainerOptions& options, const Model& model)
    : chain_(options.activation_chain()), budget_(options.activation_budget()) {
  const bool is_planned = !options.memory().is_unlimited();
  if (budget_.is_unlimited() && !is_planned) {
    return;
  }
  SequentialImpl* const sequential = !chain_.is_empty() ? nullptr
                                     : is_planned       ? sequential_if_only(model)
                                                        : only_sequential(model);
  if (sequential != nullptr && !(is_planned && has_collectives(model))) {
    sequential_ = std::make_unique<PlannedSequential>(*sequential);
    chain_ = sequential_->chain();
  }
  if (!chain_.is_empty()) {
    chain_.set_budget(is_planned ? ActivationBudget("least") : budget_);
  }
}

ActivationPlanning::~ActivationPlanning() {
  if (!chain_.is_empty()) {
    chain_.set_budget({});
  }
}

bool ActivationPlanning::watch(c10::DeviceType device, const std::function<void()>& micro_batch) {
  if (budget_.is_unlimited() || watched_ == watched_micro_batches) {
    micro_batch();
    return false;
  }
  const PlannedChain::Watch watch(chain_, device);
  micro_batch();
  const std::optional<int64_t> peak = watch.peak_bytes();
  if (!peak.has_value() && chain_.planned().has_value()) {
    return false;
  }
  measured_peak_ = std::max(measured_peak_, peak.value_or(0));
  return ++watched_ == watched_micro_batches;
}

ActivationPlanning::Peaks ActivationPlanning::measure(
    c10::DeviceType device, const std::function<void()>& micro_batch) const {
  if (chain_.is_empty()) {
    const MemoryMeter meter(device);
    micro_batch();
    Peaks peaks;
    peaks.whole = meter.peak();
    return peaks;
  }
  const PlannedChain::Watch watch(chain_, device);
  micro_batch();
  return watch.peaks();
}

const PlannedChain::Planned* ActivationPlanning::planned() const {
  return chain_.is_empty() || !chain_.planned() ? nullptr : &*chain_.planned();
}

std::string ActivationPlanning::report() const {
  if (budget_.is_unlimited()) {
    return {};
  }
  if (!chain_.planned().has_value()) {
    return watched_ == 0
               ? ""
               : c10::str(
                     "activations  budget ", budget_.text(),
                     " is not kept: forward() does not run the chain from its first stage; list "
                     "what it runs as a PlannedChain and give that to "
                     "TrainerOptions().activation_chain()");
  }
  const PlannedChain::Planned& planned = *chain_.planned();
  std::ostringstream out;
  out.precision(3);
  out << "activations  budget " << budget_.text();
  if (planned.predicted.has_value()) {
    out << ", predicted " << bytes_text(planned.predicted->peak_bytes);
  }
  if (watched_ > 0) {
    out << ", measured " << bytes_text(measured_peak_);
  }
  if (planned.plain.has_value()) {
    const double extra = planned.predicted->seconds / planned.plain->seconds - 1;
    out << " (plain " << bytes_text(planned.plain->peak_bytes) << "), recompute " << 100 * extra
        << " % of a step's time";
  }
  out << ", plan " << planned.plan.text();
  return out.str();
}

}  // namespace lockstep::detail
