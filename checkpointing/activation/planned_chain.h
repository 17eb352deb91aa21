#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/chain.h>
#include <lockstep/checkpointing/activation/checkpoint_plan.h>
#include <lockstep/checkpointing/activation/memory_meter.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/checkpointing/activation/impl/activation_budget.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <cstddef>
#include <memory>
#include <optional>

namespace lockstep {

/// Runs a chain of stages within a budget of activation bytes. The first call measures the stages
/// on its input and plans which of them to checkpoint; each call then runs by that plan.
///
/// Without a budget, or without autograd, the stages simply run. An input with more bytes than the
/// one that was planned for leads to a new plan. The measured times are those of this rank's clock,
/// so ranks may have different plans; the results have the same bits. If stages contain
/// collectives, use the automatic budget, whose plan is the same on every rank. Copies share one
/// chain and one plan. Threads: one.
///
///   model: PlannedChain blocks({chain_stage("a", a), chain_stage("b", b)});
///   forward(): return head(blocks(stem(x)));
///
/// Stages that need no gradient keep nothing and cost their forward. A stage may change its input
/// in place: no region then begins with it. A call throws lockstep::Error if no plan meets the
/// budget; the message gives the smallest budget that works.
class PlannedChain {
 public:
  /// An empty object without a chain: the default of an option.
  PlannedChain() = default;
  /// Throws lockstep::Error for a chain without stages.
  explicit PlannedChain(Chain chain);

  at::Tensor operator()(at::Tensor input) const;
  /// Runs the stage with this number alone, for a forward that uses what is between the stages. It
  /// may call any stages in any order on any tensors; the results are those of the stages. What is
  /// called in the order of the chain, each stage on what the one before returned, is recomputed
  /// as the plan says; a region of the plan ends where the order does. Stage 0 makes the plan, by
  /// measuring the chain as a whole, so every stage must take what the one before returns unless
  /// the budget is automatic.
  at::Tensor run_stage(std::size_t stage, at::Tensor input) const;
  void set_budget(const ActivationBudget& budget) const;
  /// Runs by another plan of the stages from the next call on. An input with more bytes than the
  /// one that was measured leads to a plan by the budget again. Requires: there is a plan.
  void use(const CheckpointPlan& plan) const;
  const ActivationBudget& budget() const;
  bool is_empty() const noexcept { return state_ == nullptr; }
  bool is_same(const PlannedChain& other) const noexcept { return state_ == other.state_; }
  /// Whether a call now runs by a plan: there is a budget, and autograd records.
  bool plans() const;

  /// The plan for the largest input so far.
  struct Planned {
    CheckpointPlan plan;
    std::size_t input_bytes = 0;         // of the chain's input
    ChainCosts costs;                    // of each stage; empty if nothing was measured
    std::optional<PlanCosts> predicted;  // empty if nothing was measured
    std::optional<PlanCosts> plain;      // the prediction without checkpoints
  };
  const std::optional<Planned>& planned() const;

  /// Measures the peak of the chain's activation bytes in one forward and backward, to be compared
  /// with predicted->peak_bytes. Both must run in the lifetime of the object. Threads: the thread
  /// that runs forward.
  class Watch {
   public:
    Watch(const PlannedChain& chain, c10::DeviceType device);
    /// Empty if the chain has not run. A call that makes a plan is not measured.
    std::optional<int64_t> peak_bytes() const;
    /// Bytes since the object was made. Those of the chain are of its last call.
    struct Peaks {
      bool has_chain = false;  // the chain has run, by a plan that it had
      int64_t whole = 0;       // the most that there were
      int64_t before = 0;      // when the chain began
      int64_t between = 0;     // the most from the end of its forward to the begin of its backward,
                               // beyond what there was at that end
    };
    /// `whole` alone if the chain has not run.
    Peaks peaks() const;

   private:
    friend class PlannedChain;
    struct Figures;
    std::shared_ptr<Figures> figures_;
  };

 private:
  struct State;
  void begin(const at::Tensor& input) const;
  void end(const at::Tensor& output) const;
  void plan_for(const at::Tensor& input) const;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
