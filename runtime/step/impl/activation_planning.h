#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/checkpointing/activation/planned_chain.h>
#include <lockstep/runtime/trainer_options.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace lockstep::detail {

class PlannedSequential;

/// Keeps a Trainer's model within TrainerOptions::activation_budget: gives the budget to the chain,
/// watches the first micro-batches after the plan is made, and compares their peak with what was
/// predicted. With TrainerOptions::memory the chain begins with the least budget, and
/// MemoryPlanning replaces the plan.
///
/// The chain is options.activation_chain() or, without one, the model's only torch::nn::Sequential
/// (itself, or inside it), as a PlannedSequential for the life of this object.
/// Ranks: no communication. Throws Error where there is no such chain, or more than one; with
/// TrainerOptions::memory nothing is planned then.
class ActivationPlanning {
 public:
  using Peaks = PlannedChain::Watch::Peaks;

  ActivationPlanning(const TrainerOptions& options, const Model& model);
  ~ActivationPlanning();
  ActivationPlanning(const ActivationPlanning&) = delete;
  ActivationPlanning& operator=(const ActivationPlanning&) = delete;

  /// Runs one micro-batch. Returns true if it completes the figures of report().
  bool watch(c10::DeviceType device, const std::function<void()>& micro_batch);
  /// Runs one micro-batch and measures it.
  Peaks measure(c10::DeviceType device, const std::function<void()>& micro_batch) const;

  /// Null if there is no chain, or none that has run. Valid until the next micro-batch or use().
  const PlannedChain::Planned* planned() const;
  /// Runs by this plan from the next micro-batch on. Requires: planned().
  void use(const CheckpointPlan& plan) const { chain_.use(plan); }

  /// One line: the plan, and predicted against measured peak. Empty before the first micro-batch.
  std::string report() const;

 private:
  std::unique_ptr<PlannedSequential> sequential_;
  PlannedChain chain_;
  ActivationBudget budget_;
  int64_t watched_ = 0;
  int64_t measured_peak_ = 0;
};

/// Throws Error if ActivationPlanning cannot be made.
void require_activation_chain(const TrainerOptions& options, const Model& model);

}  // namespace lockstep::detail
