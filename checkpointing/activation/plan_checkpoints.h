#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/chain.h>
#include <lockstep/checkpointing/activation/chain_costs.h>
#include <lockstep/checkpointing/activation/checkpoint_plan.h>

#include <cstdint>
#include <utility>

namespace lockstep {

/// The plan with the least time among those whose activations stay within the budget, by the
/// dynamic programme of rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova): optimal for
/// chains among plans that keep what they save until backward uses it.
///
/// The budget is divided into `slots` and each size rounded up to slots; plans that would only fit
/// without the rounding are then tried too, so the plan is within the budget and wastes little of
/// it. More slots waste less and take longer (time and memory grow by slots; 100 stages and 500
/// slots take under 2 s). Throws lockstep::Error that names the least budget which works.
CheckpointPlan plan_checkpoints(const ChainCosts& costs, int64_t budget_bytes, int64_t slots = 500);

/// Measures the chain on a sample first; see profile_chain().
CheckpointPlan plan_checkpoints(const Chain& chain, const at::Tensor& sample, int64_t budget_bytes);

/// The same for a torch::nn::Sequential; run the plan with plan.run(chain_of(sequential), x).
template <class Sequential, class = decltype(std::declval<Sequential&>()->size())>
CheckpointPlan plan_checkpoints(Sequential& sequential, const at::Tensor& sample,
                                int64_t budget_bytes) {
  return plan_checkpoints(chain_of(sequential), sample, budget_bytes);
}

/// The least activation bytes that any plan needs, exactly.
int64_t least_activation_bytes(const ChainCosts& costs);

}  // namespace lockstep
