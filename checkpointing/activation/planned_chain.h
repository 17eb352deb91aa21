#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/activation_budget.h>
#include <lockstep/checkpointing/activation/chain.h>
#include <lockstep/checkpointing/activation/checkpoint_plan.h>
#include <lockstep/checkpointing/activation/memory_meter.h>

#include <memory>
#include <optional>

namespace lockstep {

/// A chain that keeps within a budget of activation bytes: called with its first input it measures
/// its stages and plans which of them to checkpoint; each call then runs by that plan.
///
/// Without a budget, and without autograd, it just runs its stages. A larger input than the one
/// that was planned for is planned anew. The plan comes from this rank's clock: ranks may find
/// different ones, and the results have the same bits; for stages with collectives in them use the
/// automatic budget, which is the same everywhere. Copies share one chain and plan. Threads: one.
///
///   model: PlannedChain blocks({chain_stage("a", a), chain_stage("b", b)});
///   forward(): return head(blocks(stem(x)));
///
/// Throws lockstep::Error from a call where no plan meets the budget; it says the least that works.
class PlannedChain {
 public:
  /// No chain: for options that are not set.
  PlannedChain() = default;
  /// Throws lockstep::Error for a chain without stages.
  explicit PlannedChain(Chain chain);

  at::Tensor operator()(at::Tensor input) const;
  void set_budget(const ActivationBudget& budget) const;
  bool is_empty() const noexcept { return state_ == nullptr; }

  /// What was planned on the largest input so far.
  struct Planned {
    CheckpointPlan plan;
    std::optional<PlanCosts> predicted;  // none where nothing was measured
    std::optional<PlanCosts> plain;      // the same without checkpoints
  };
  const std::optional<Planned>& planned() const;

  /// Measures the peak of the chain's activations in one forward and backward, both of them in the
  /// life of the object: what predicted->peak_bytes foresees. Threads: that of forward.
  class Watch {
   public:
    Watch(const PlannedChain& chain, c10::DeviceType device);
    /// None if the chain has not run, or if it has planned meanwhile.
    std::optional<int64_t> peak_bytes() const;

   private:
    friend class PlannedChain;
    struct Figures;
    std::shared_ptr<Figures> figures_;
  };

 private:
  struct State;
  void plan_for(const at::Tensor& input) const;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
