#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/chain.h>
#include <lockstep/checkpointing/activation/checkpoint_plan.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/checkpointing/activation/impl/chain_costs.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <cstdint>
#include <utility>

namespace lockstep {

/// Finds the fastest plan whose activations stay within the budget, with the dynamic program of
/// rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova). The plan is optimal for chains, among
/// the plans that keep each saved tensor until backward uses it.
///
/// The budget is divided into `slots`, and each size is rounded up to whole slots. Plans that fit
/// only without the rounding are then tried too, so the plan stays within the budget and wastes
/// little of it. More slots waste less, but planning takes more time and memory, both of which grow
/// with the slots (100 stages and 500 slots take less than 2 s). Throws lockstep::Error if no plan
/// fits; the message gives the smallest budget that works.
CheckpointPlan plan_checkpoints(const ChainCosts& costs, int64_t budget_bytes, int64_t slots = 500);

/// As above, with costs that profile_chain() measures on the sample.
CheckpointPlan plan_checkpoints(const Chain& chain, const at::Tensor& sample, int64_t budget_bytes);

/// As above, for a torch::nn::Sequential. Run the plan with plan.run(chain_of(sequential), x).
template <class Sequential, class = decltype(std::declval<Sequential&>()->size())>
CheckpointPlan plan_checkpoints(Sequential& sequential, const at::Tensor& sample,
                                int64_t budget_bytes) {
  return plan_checkpoints(chain_of(sequential), sample, budget_bytes);
}

/// The smallest number of activation bytes that any plan needs; exact, not rounded to slots.
int64_t least_activation_bytes(const ChainCosts& costs);
/// The same of a chain that a computation follows: plan_followed_checkpoints().
int64_t least_activation_bytes(const ChainCosts& costs, int64_t following_bytes);

/// A plan with the peak of the chain and of what the model computes after it.
struct FollowedPlan {
  CheckpointPlan plan;
  int64_t peak_bytes = 0;
};

/// As plan_checkpoints(), for a chain that a computation follows, such as head and loss, which
/// needs `following_bytes` while the activations of the chain are kept. The budget is that of both;
/// if no plan meets it, the plan with the smallest peak is returned.
FollowedPlan plan_followed_checkpoints(const ChainCosts& costs, int64_t following_bytes,
                                       int64_t budget_bytes, int64_t slots = 500);

}  // namespace lockstep
