#include <lockstep/checkpointing/activation/plan/plan_solver.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>
#include <lockstep/checkpointing/activation/recompute/segment_memory.h>
#include <lockstep/collectives/check.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace lockstep {

namespace {

using activation::SegmentMemory;

void check_costs(const ChainCosts& costs) {
  LOCKSTEP_CHECK(!costs.empty() && costs.size() < std::numeric_limits<activation::Decision>::max(),
                 "plan_checkpoints: the chain has ", costs.size(),
                 " stages, it must have from 1 to 32766");
  for (const StageCosts& c : costs) {
    LOCKSTEP_CHECK(c.forward_seconds >= 0 && c.backward_seconds >= 0 && c.output_bytes >= 0 &&
                       c.saved_bytes >= (c.keeps_output ? c.output_bytes : 0) &&
                       c.forward_temporary_bytes >= 0 && c.passing_temporary_bytes >= 0 &&
                       c.backward_temporary_bytes >= 0,
                   "plan_checkpoints: stage '", c.name,
                   "' has a negative cost, or keeps its output in less than its bytes");
  }
}

/// The pieces without the last stage. A plan never gains by a region that ends with the last stage.
std::vector<CheckpointPlan::Piece> without_last_stage(std::vector<CheckpointPlan::Piece> pieces) {
  if (pieces.back().is_region()) {
    pieces.back().pieces = without_last_stage(std::move(pieces.back().pieces));
  }
  if (pieces.back().pieces.empty()) {
    pieces.pop_back();
  }
  return pieces;
}

/// The chain with a last stage for what follows it, which keeps nothing.
ChainCosts followed(ChainCosts costs, int64_t bytes) {
  StageCosts& rest = costs.emplace_back();
  rest.name = "what follows the chain";
  rest.keeps_output = false;
  rest.forward_temporary_bytes = bytes;
  rest.passing_temporary_bytes = bytes;
  rest.backward_temporary_bytes = bytes;
  return costs;
}

}  // namespace

CheckpointPlan plan_checkpoints(const ChainCosts& costs, int64_t budget_bytes, int64_t slots) {
  check_costs(costs);
  LOCKSTEP_CHECK(slots >= 1, "plan_checkpoints: slots is ", slots, ", it must be at least 1");
  const activation::LeastMemory least = activation::least_memory(SegmentMemory(costs));
  LOCKSTEP_CHECK(budget_bytes >= least.memory, "plan_checkpoints: the budget is ", budget_bytes,
                 " bytes, but the activations of these ", costs.size(), " stages need at least ",
                 least.memory,
                 " bytes however they are checkpointed: raise the budget, make the "
                 "batch smaller, or divide the largest stage");
  const int64_t slot = (budget_bytes + slots - 1) / slots;
  std::optional<CheckpointPlan> plan = activation::fastest_plan(costs, slot, budget_bytes);
  // Rounding up may lose plans that just fit.
  return plan.has_value() ? *plan : least.plan;
}

CheckpointPlan plan_checkpoints(const Chain& chain, const at::Tensor& sample,
                                int64_t budget_bytes) {
  return plan_checkpoints(profile_chain(chain, sample), budget_bytes);
}

int64_t least_activation_bytes(const ChainCosts& costs) {
  check_costs(costs);
  return activation::least_memory(SegmentMemory(costs)).memory;
}

int64_t least_activation_bytes(const ChainCosts& costs, int64_t following_bytes) {
  return least_activation_bytes(followed(costs, following_bytes));
}

FollowedPlan plan_followed_checkpoints(const ChainCosts& costs, int64_t following_bytes,
                                       int64_t budget_bytes, int64_t slots) {
  const ChainCosts all = followed(costs, following_bytes);
  const CheckpointPlan plan =
      plan_checkpoints(all, std::max(budget_bytes, least_activation_bytes(all)), slots);
  return {CheckpointPlan(without_last_stage(plan.pieces())), plan.predict(all).peak_bytes};
}

}  // namespace lockstep
