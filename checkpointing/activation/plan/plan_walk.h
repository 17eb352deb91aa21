#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/activation/chain.h>
#include <lockstep/checkpointing/activation/checkpoint_plan.h>
#include <lockstep/checkpointing/activation/impl/engine_hook.h>
#include <lockstep/checkpointing/activation/impl/execution_state.h>
#include <lockstep/checkpointing/activation/impl/rng_state.h>
#include <lockstep/checkpointing/activation/impl/saved_slot.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::activation {

/// A chain, and the regions that a plan divides it into, numbered from the first to the last.
class PlannedStages {
 public:
  /// The pieces must be those of a plan for as many stages as the chain has.
  PlannedStages(std::shared_ptr<const Chain> chain,
                const std::vector<CheckpointPlan::Piece>& pieces);

  std::size_t size() const { return chain_->size(); }
  const ChainStage& operator[](std::size_t stage) const { return (*chain_)[stage]; }
  /// The regions that the stage lies in, from the outermost to the innermost.
  const std::vector<std::size_t>& regions_of(std::size_t stage) const { return regions_[stage]; }
  std::size_t last_stage_of(std::size_t region) const { return last_stages_[region]; }

 private:
  void add(const std::vector<CheckpointPlan::Piece>& pieces, std::vector<std::size_t>& inside);

  std::shared_ptr<const Chain> chain_;
  std::vector<std::vector<std::size_t>> regions_;
  std::vector<std::size_t> last_stages_;
};

/// Runs the stages of a chain by its plan, one call for each stage. A region covers those of its
/// stages that run one after another, and recomputes them from the input of the first one.
///
/// A stage that changes the region's input in place cannot be recomputed from it. If a region
/// begins with such stages, their saved tensors are kept and the region begins after them. Tensors
/// of a stage stay in memory until it is known not to be such a stage: no more memory than the
/// region's backward needs.
///
/// Threads: one at a time.
class PlanWalk {
 public:
  explicit PlanWalk(std::shared_ptr<const PlannedStages> stages) : PlanWalk(stages, 0) {}

  /// Runs the whole chain; without autograd, without regions.
  at::Tensor run(at::Tensor input);
  /// Runs one stage, under autograd. Continues the regions of the last call if that was the stage
  /// before, `input` is its output, and the state of this thread and of the random generators is
  /// the same.
  at::Tensor step(std::size_t stage, at::Tensor input);
  /// Ends the regions that step() might continue.
  void close() noexcept { open_.clear(); }

 private:
  class StagesRegion;
  using Regions = std::vector<std::shared_ptr<StagesRegion>>;

  /// Where step() left off.
  struct Position {
    Position(std::size_t next_stage, const at::Tensor& next_input);
    bool is_at(std::size_t stage, const at::Tensor& input) const;

    std::size_t stage;
    TensorIdentity input;
    SavedTensorPolicy* policy;
    ExecutionState execution;
    RngState rng;
  };

  /// For a region's recompute, which is inside `depth` regions.
  PlanWalk(std::shared_ptr<const PlannedStages> stages, std::size_t depth)
      : stages_(std::move(stages)), depth_(depth) {}

  /// Runs the next stage and opens and ends regions.
  at::Tensor advance(std::size_t stage, at::Tensor input);
  at::Tensor run_inside(Regions& open, std::size_t level, std::size_t stage, at::Tensor input);

  std::shared_ptr<const PlannedStages> stages_;
  std::size_t depth_;
  Regions open_;  // regions that the next stage may lie in
  std::optional<Position> position_;
};

}  // namespace lockstep::activation
