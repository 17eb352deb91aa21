#include <ATen/record_function.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>
#include <lockstep/checkpointing/activation/planned_chain.h>
#include <lockstep/checkpointing/activation/region.h>
#include <lockstep/collectives/error.h>

#include <algorithm>
#include <utility>

namespace lockstep {

struct PlannedChain::Watch::Figures {
  explicit Figures(c10::DeviceType device) : meter(device) {}

  void begin_forward() {
    before = meter.live();
    meter.reset_peak();
  }
  void end_forward() {
    forward_peak = std::max(forward_peak, meter.peak());
    valid = true;
  }
  /// The activations of head and loss are not the chain's.
  void begin_backward() { meter.reset_peak(); }

  MemoryMeter meter;
  int64_t before = 0;
  int64_t forward_peak = 0;
  bool valid = false;
};

struct PlannedChain::State {
  std::shared_ptr<const Chain> chain;
  ActivationBudget budget;
  std::optional<Planned> planned;
  std::size_t planned_bytes = 0;
  std::weak_ptr<Watch::Figures> watch;
};

PlannedChain::PlannedChain(Chain chain) : state_(std::make_shared<State>()) {
  LOCKSTEP_CHECK(!chain.empty(), "PlannedChain: the chain has no stages");
  state_->chain = std::make_shared<const Chain>(std::move(chain));
}

void PlannedChain::set_budget(const ActivationBudget& budget) const {
  state_->budget = budget;
  state_->planned.reset();
}

const std::optional<PlannedChain::Planned>& PlannedChain::planned() const {
  return state_->planned;
}

at::Tensor PlannedChain::operator()(at::Tensor input) const {
  State& state = *state_;
  if (state.budget.is_unlimited() || !activation::Region::wanted()) {
    for (const ChainStage& stage : *state.chain) {
      input = stage.forward(std::move(input));
    }
    return input;
  }
  const bool plans = !state.planned.has_value() || input.nbytes() > state.planned_bytes;
  if (plans) {
    plan_for(input);
  }
  const std::shared_ptr<Watch::Figures> watch = state.watch.lock();
  if (!watch || plans) {
    return state.planned->plan.run(state.chain, std::move(input));
  }
  watch->begin_forward();
  at::Tensor output = state.planned->plan.run(state.chain, std::move(input));
  watch->end_forward();
  output.register_hook([weak = state.watch](const at::Tensor& /*gradient*/) {
    if (const auto figures = weak.lock()) {
      figures->begin_backward();
    }
  });
  return output;
}

void PlannedChain::plan_for(const at::Tensor& input) const {
  State& state = *state_;
  const auto stages = static_cast<int64_t>(state.chain->size());
  state.planned_bytes = input.nbytes();
  if (state.budget.is_automatic()) {
    state.planned = Planned{CheckpointPlan::automatic(stages), std::nullopt, std::nullopt};
    return;
  }
  const ChainCosts costs = [&] {
    const at::DisableRecordFunctionGuard not_part_of_the_step;  // for FlopCounter
    return profile_chain(*state.chain, input);
  }();
  CheckpointPlan plan = plan_checkpoints(costs, state.budget.bytes());
  const PlanCosts predicted = plan.predict(costs);
  state.planned =
      Planned{std::move(plan), predicted, CheckpointPlan::uniform(stages, 1).predict(costs)};
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

}  // namespace lockstep
