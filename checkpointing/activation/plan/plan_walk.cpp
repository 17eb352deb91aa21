#include <c10/core/TensorImpl.h>
#include <lockstep/checkpointing/activation/impl/region.h>
#include <lockstep/checkpointing/activation/impl/scratch_buffers.h>
#include <lockstep/checkpointing/activation/plan/plan_walk.h>
#include <lockstep/checkpointing/activation/recomputing.h>

#include <cstdint>
#include <string>
#include <typeinfo>
#include <utility>

namespace lockstep::activation {

PlannedStages::PlannedStages(std::shared_ptr<const Chain> chain,
                             const std::vector<CheckpointPlan::Piece>& pieces)
    : chain_(std::move(chain)) {
  std::vector<std::size_t> inside;
  add(pieces, inside);
}

void PlannedStages::add(const std::vector<CheckpointPlan::Piece>& pieces,
                        std::vector<std::size_t>& inside) {
  for (const CheckpointPlan::Piece& piece : pieces) {
    if (!piece.is_region()) {
      regions_.push_back(inside);
      continue;
    }
    const std::size_t number = last_stages_.size();
    last_stages_.push_back(0);
    inside.push_back(number);
    add(piece.pieces, inside);
    inside.pop_back();
    last_stages_[number] = regions_.size() - 1;
  }
}

/// A region of the plan: those of its stages that run one after another.
class PlanWalk::StagesRegion final : public Region {
 public:
  StagesRegion(std::shared_ptr<const PlannedStages> stages, std::size_t depth, std::size_t number,
               std::size_t first, const at::Tensor& input)
      : Region(CheckpointOptions().name((*stages)[first].name + " and what follows it")),
        stages_(std::move(stages)),
        depth_(depth),
        number_(number),
        first_(first),
        last_(first),
        input_storage_(input),
        input_version_(input.unsafeGetTensorImpl()->version_counter()),
        first_version_(input_version_.current_version()) {
    save_input(input);
    retain();
  }

  std::size_t number() const { return number_; }

  void begin(std::size_t stage) {
    last_ = stage;
    set_forward_finished(false);
  }

  /// False if the region ends here, since the stage changed its input.
  bool finish(const at::Tensor& output) {
    set_forward_finished(true);
    if (retains() && input_version_.current_version() != first_version_) {
      return false;
    }
    check_inputs_unchanged("inside the region");
    if (retains() && !input_storage_.is_of(output)) {
      drop_retained();
    }
    return true;
  }

 private:
  void run_again(const std::vector<at::Tensor>& inputs) override {
    PlanWalk walk(stages_, depth_ + 1);
    at::Tensor x = inputs[0];
    for (std::size_t stage = first_; stage <= last_; ++stage) {
      x = walk.advance(stage, std::move(x));
    }
  }
  std::vector<at::Tensor> module_buffers() const override {
    std::vector<at::Tensor> all;
    for (std::size_t stage = first_; stage <= last_; ++stage) {
      const std::vector<at::Tensor> more = (*stages_)[stage].buffers();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  const std::type_info& function_type() const override { return typeid(StagesRegion); }

  const std::shared_ptr<const PlannedStages> stages_;
  const std::size_t depth_;
  const std::size_t number_;
  const std::size_t first_;
  std::size_t last_;
  const StorageIdentity input_storage_;
  const c10::VariableVersion input_version_;  // outlives the input
  const uint32_t first_version_;
};

PlanWalk::Position::Position(std::size_t next_stage, const at::Tensor& next_input)
    : stage(next_stage),
      input(next_input),
      policy(HookScope::top()),
      execution(ExecutionState::current()),
      rng(RngState::current()) {}

bool PlanWalk::Position::is_at(std::size_t other_stage, const at::Tensor& other_input) const {
  return stage == other_stage && input.is_of(other_input) &&
         input.version() == input.current_version() && policy == HookScope::top() &&
         execution == ExecutionState::current() && rng == RngState::current();
}

at::Tensor PlanWalk::run(at::Tensor input) {
  const bool by_plan = Region::wanted();
  for (std::size_t stage = 0; stage < stages_->size(); ++stage) {
    input =
        by_plan ? advance(stage, std::move(input)) : (*stages_)[stage].forward(std::move(input));
  }
  return input;
}

at::Tensor PlanWalk::step(std::size_t stage, at::Tensor input) {
  if (!open_.empty() && !position_->is_at(stage, input)) {
    close();
  }
  at::Tensor output = advance(stage, std::move(input));
  if (!open_.empty()) {
    position_.emplace(stage + 1, output);
  }
  return output;
}

at::Tensor PlanWalk::advance(std::size_t stage, at::Tensor input) {
  Regions open = std::exchange(open_, {});  // stays empty if a stage throws
  const std::vector<std::size_t>& around = stages_->regions_of(stage);
  std::size_t stay = 0;
  while (stay < open.size() && depth_ + stay < around.size() &&
         open[stay]->number() == around[depth_ + stay]) {
    ++stay;
  }
  open.resize(stay);
  at::Tensor output = run_inside(open, 0, stage, std::move(input));
  for (std::size_t level = open.size(); level-- > 0;) {
    const bool goes_on = open[level]->finish(output);
    if (!goes_on || stages_->last_stage_of(open[level]->number()) == stage) {
      open.resize(level);
    }
  }
  open_ = std::move(open);
  return output;
}

at::Tensor PlanWalk::run_inside(Regions& open, std::size_t level, std::size_t stage,
                                at::Tensor input) {
  const std::vector<std::size_t>& around = stages_->regions_of(stage);
  if (depth_ + level == around.size()) {
    const ChainStage& runs = (*stages_)[stage];
    std::optional<ScratchBuffers> scratch;
    if (level > 0 && is_recomputing()) {
      scratch.emplace(runs.buffers());
    }
    return runs.forward(std::move(input));
  }
  if (level == open.size()) {
    open.push_back(std::make_shared<StagesRegion>(stages_, depth_ + level, around[depth_ + level],
                                                  stage, input));
  }
  open[level]->begin(stage);
  const HookScope hooks(open[level].get());
  return run_inside(open, level + 1, stage, std::move(input));
}

}  // namespace lockstep::activation
