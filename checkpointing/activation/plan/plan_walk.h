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

/// Runs the stages of a chain by its plan, a call for each stage. A region reaches as far as its
/// stages are run one after another: what was run of it is recomputed from the input of the first
/// of these stages.
///
/// A stage that changes the region's input in place could not be recomputed from it. What such
/// stages save at the beginning of a region is kept, and the region begins behind them. Until it is
/// known that a stage is none, the tensors that autograd saves in it stay in memory: no more than
/// are there together in the region's own backward.
///
/// Threads: one at a time.
class PlanWalk {
 public:
  explicit PlanWalk(std::shared_ptr<const PlannedStages> stages) : PlanWalk(stages, 0) {}

  /// Runs the whole chain; without autograd, its stages alone.
  at::Tensor run(at::Tensor input);
  /// Runs one stage, under autograd, wherever the caller stands. It goes on in the regions of the
  /// stage before if that was the last call, in the same state of this thread and of the random
  /// generators, and the input is what it returned.
  at::Tensor step(std::size_t stage, at::Tensor input);
  /// Ends the regions that step() might go on with.
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

  /// For a region's recompute: its own regions are those behind the first `depth`.
  PlanWalk(std::shared_ptr<const PlannedStages> stages, std::size_t depth)
      : stages_(std::move(stages)), depth_(depth) {}

  /// Runs a stage that follows the one before.
  at::Tensor advance(std::size_t stage, at::Tensor input);
  at::Tensor run_inside(Regions& open, std::size_t level, std::size_t stage, at::Tensor input);

  std::shared_ptr<const PlannedStages> stages_;
  std::size_t depth_;
  Regions open_;  // those that the next stage may lie in
  std::optional<Position> position_;
};

}  // namespace lockstep::activation
