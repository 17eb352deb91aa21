#include <ATen/record_function.h>
#include <lockstep/checkpointing/activation/impl/engine_hook.h>
#include <lockstep/checkpointing/activation/impl/region.h>
#include <lockstep/checkpointing/activation/plan/plan_walk.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>
#include <lockstep/checkpointing/activation/planned_chain.h>
#include <lockstep/collectives/check.h>

#include <algorithm>
#include <utility>

namespace lockstep {

struct PlannedChain::Watch::Figures {
  explicit Figures(c10::DeviceType device) : meter(device) {}

  void begin_forward() {
    outside_peak = std::max(outside_peak, meter.peak());
    before = meter.live();
    meter.reset_peak();
  }
  void end_forward() {
    forward_peak = std::max(forward_peak, meter.peak());
    kept = meter.live() - before;
    meter.reset_peak();
    valid = true;
  }
  /// The activations of head and loss do not belong to the chain.
  void begin_backward() {
    between_peak = meter.peak();
    outside_peak = std::max(outside_peak, between_peak);
    meter.reset_peak();
  }

  MemoryMeter meter;
  int64_t before = 0;
  int64_t kept = 0;
  int64_t forward_peak = 0;
  int64_t between_peak = 0;
  int64_t outside_peak = 0;
  bool valid = false;
};

struct PlannedChain::State {
  std::shared_ptr<const Chain> chain;
  ActivationBudget budget;
  std::optional<Planned> planned;
  std::shared_ptr<const activation::PlannedStages> stages;  // of the plan
  std::optional<activation::PlanWalk> walk;                 // of run_stage()
  std::weak_ptr<Watch::Figures> watch;
  std::weak_ptr<Watch::Figures> measuring;  // the watch of the call that runs

  void take(Planned next) {
    stages = std::make_shared<const activation::PlannedStages>(chain, next.plan.pieces());
    walk.emplace(stages);
    planned = std::move(next);
  }
};

PlannedChain::PlannedChain(Chain chain) : state_(std::make_shared<State>()) {
  LOCKSTEP_CHECK(!chain.empty(), "PlannedChain: the chain has no stages");
  state_->chain = std::make_shared<const Chain>(std::move(chain));
}

void PlannedChain::set_budget(const ActivationBudget& budget) const {
  state_->budget = budget;
  state_->planned.reset();
  state_->stages.reset();
  state_->walk.reset();
}

void PlannedChain::use(const CheckpointPlan& plan) const {
  State& state = *state_;
  LOCKSTEP_CHECK(state.planned.has_value(), "PlannedChain: there is no plan to replace yet");
  LOCKSTEP_CHECK(plan.stages() == static_cast<int64_t>(state.chain->size()),
                 "PlannedChain: the plan is for ", plan.stages(), " stages, the chain has ",
                 state.chain->size());
  Planned next = *state.planned;
  next.plan = plan;
  if (!next.costs.empty()) {
    next.predicted = plan.predict(next.costs);
  }
  state.take(std::move(next));
}

const ActivationBudget& PlannedChain::budget() const {
  return state_->budget;
}

const std::optional<PlannedChain::Planned>& PlannedChain::planned() const {
  return state_->planned;
}

bool PlannedChain::plans() const {
  return !state_->budget.is_unlimited() && activation::Region::wanted();
}

at::Tensor PlannedChain::operator()(at::Tensor input) const {
  if (!plans()) {
    for (const ChainStage& stage : *state_->chain) {
      input = stage.forward(std::move(input));
    }
    return input;
  }
  begin(input);
  at::Tensor output = activation::PlanWalk(state_->stages).run(std::move(input));
  end(output);
  return output;
}

at::Tensor PlannedChain::run_stage(std::size_t stage, at::Tensor input) const {
  State& state = *state_;
  LOCKSTEP_CHECK(stage < state.chain->size(), "PlannedChain: stage ", stage, " of a chain of ",
                 state.chain->size(), " stages");
  if (plans() && (stage == 0 || (state.budget.is_automatic() && !state.planned.has_value()))) {
    begin(input);
  }
  if (!plans() || !state.planned.has_value()) {
    return (*state.chain)[stage].forward(std::move(input));
  }
  at::Tensor output = state.walk->step(stage, std::move(input));
  if (stage + 1 == state.chain->size()) {
    end(output);
  }
  return output;
}

/// Makes the plan if there is none. Planning is not measured.
void PlannedChain::begin(const at::Tensor& input) const {
  State& state = *state_;
  state.measuring.reset();
  if (!state.planned.has_value() || input.nbytes() > state.planned->input_bytes) {
    plan_for(input);
  } else if (const auto watch = state.watch.lock()) {
    state.measuring = watch;
    watch->begin_forward();
  }
}

void PlannedChain::end(const at::Tensor& output) const {
  const auto watch = std::exchange(state_->measuring, {}).lock();
  if (!watch) {
    return;
  }
  watch->end_forward();
  if (output.requires_grad()) {
    output.register_hook([weak = state_->watch](const at::Tensor& /*gradient*/) {
      if (const auto figures = weak.lock()) {
        figures->begin_backward();
      }
    });
  }
}

void PlannedChain::plan_for(const at::Tensor& input) const {
  State& state = *state_;
  const auto stages = static_cast<int64_t>(state.chain->size());
  state.planned.reset();
  if (state.budget.is_automatic()) {
    state.take({CheckpointPlan::automatic(stages), input.nbytes(), {}, std::nullopt, std::nullopt});
    return;
  }
  ChainCosts costs = [&] {
    const at::DisableRecordFunctionGuard not_part_of_the_step;  // for FlopCounter
    const activation::HookScope not_part_of_a_region(nullptr);
    return profile_chain(*state.chain, input);
  }();
  CheckpointPlan plan = plan_checkpoints(
      costs, state.budget.is_least() ? least_activation_bytes(costs) : state.budget.bytes());
  const PlanCosts predicted = plan.predict(costs);
  const PlanCosts plain = CheckpointPlan::uniform(stages, 1).predict(costs);
  state.take({std::move(plan), input.nbytes(), std::move(costs), predicted, plain});
}

PlannedChain::Watch::Watch(const PlannedChain& chain, c10::DeviceType device)
    : figures_(std::make_shared<Figures>(device)) {
  chain.state_->watch = figures_;
}

std::optional<int64_t> PlannedChain::Watch::peak_bytes() const {
  const Figures& figures = *figures_;
  if (!figures.valid) {
    return std::nullopt;
  }
  return std::max(figures.forward_peak, figures.meter.peak()) - figures.before;
}

PlannedChain::Watch::Peaks PlannedChain::Watch::peaks() const {
  const Figures& figures = *figures_;
  Peaks peaks;
  peaks.whole = std::max({figures.outside_peak, figures.forward_peak, figures.meter.peak()});
  if (figures.valid) {
    peaks.has_chain = true;
    peaks.before = figures.before;
    peaks.between = std::max<int64_t>(0, figures.between_peak - figures.before - figures.kept);
  }
  return peaks;
}

}  // namespace lockstep
