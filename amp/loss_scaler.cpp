#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/plain_tensor.h>

#include <ATen/ATen.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <utility>

namespace lockstep::amp {

static_assert(std::is_trivially_copyable_v<ScalerState>);
static_assert(offsetof(ScalerState, scale) == 0, "scale_tensor() views the first four bytes");

ScalerRule scaler_rule(const LossScalerOptions& options) {
  options.validate();
  ScalerRule rule{};
  rule.growth_factor = options.growth_factor();
  rule.backoff_factor = options.backoff_factor();
  rule.min_scale = static_cast<float>(options.min_scale());
  rule.max_scale = static_cast<float>(options.max_scale());
  rule.growth_interval = static_cast<int32_t>(options.growth_interval());
  rule.hysteresis = static_cast<int32_t>(options.hysteresis());
  rule.dynamic = options.enabled() && options.dynamic();
  rule.consecutive_hysteresis = options.consecutive_hysteresis();
  rule.iterations_since_overflow = options.growth_rule() == GrowthRule::iterations_since_overflow;
  return rule;
}

namespace {

constexpr int64_t kLeastSkips = 20;                   // in a row, before the run may end
constexpr double kLowestUsefulScale = 1.0 / 65536.0;  // only gradients above 4e9 overflow fp16 here

/// Whether an overflow can still lower the scale (or use up hysteresis).
bool still_falls(const LossScalerOptions& options, const ScalerState& state) {
  return options.enabled() && options.dynamic() && options.backoff_factor() < 1.0 &&
         state.scale > std::max(options.min_scale(), kLowestUsefulScale);
}

bool budget_is_spent(const LossScalerOptions& options, const ScalerState& state) {
  if (const auto& budget = options.max_consecutive_skips()) {
    return *budget > 0 && state.consecutive_skips >= *budget;
  }
  return state.consecutive_skips >= kLeastSkips && !still_falls(options, state);
}

}  // namespace

ScalerState initial_state(const LossScalerOptions& options) {
  ScalerState state;
  state.scale = options.enabled() ? static_cast<float>(options.init_scale()) : 1.0F;
  state.hysteresis_tracker = static_cast<int32_t>(options.hysteresis());
  return state;
}

void check_skip_budget(const LossScalerOptions& options, const ScalerState& state) {
  if (!budget_is_spent(options, state)) {
    return;
  }
  const auto& budget = options.max_consecutive_skips();
  const bool exhausted = !still_falls(options, state) || state.scale <= 1.0F;
  throw Error(
      c10::str(state.consecutive_skips, " updates in a row were skipped (max_consecutive_skips is ",
               budget ? std::to_string(*budget) : "unset", "), the loss scale is ", state.scale,
               exhausted ? ": it cannot help further, so the cause is the model or the data: look "
                           "for the first non-finite activation, lower the learning rate, or keep "
                           "the layer that overflows in fp32 (Precision::keep_fp32)"
                         : ": start from a smaller init_scale, or allow more skips while it falls"),
      ExitCode::non_finite);
}

bool next_skip_spends_budget(const LossScalerOptions& options, const ScalerState& state) {
  if (state.consecutive_skips == 0) {
    return false;
  }
  ScalerState next = state;
  advance(next, scaler_rule(options), /*overflow=*/true);
  return budget_is_spent(options, next);
}

LossScaler::LossScaler(LossScalerOptions options, c10::Device device)
    : options_(std::move(options)) {
  options_.validate();
  LOCKSTEP_CHECK(device.is_cpu() || (device.is_cuda() && cuda_kernels_available()),
                 "LossScaler: no kernels for device ", device.str(),
                 " in this build: use the CPU, or build lockstep with CUDA");
  storage_ = at::zeros({static_cast<int64_t>(sizeof(ScalerState))},
                       at::TensorOptions().dtype(at::kByte).device(device));
  store(initial_state(options_));
}

LossScaler::LossScaler(LossScalerOptions options, Communicator communicator, c10::Device device)
    : LossScaler(std::move(options), device) {
  communicator_ = std::make_shared<const Communicator>(std::move(communicator));
}

at::Tensor LossScaler::scale_tensor() const {
  return storage_.view(at::kFloat).select(0, 0);
}

at::Tensor LossScaler::scale(const at::Tensor& loss) {
  LOCKSTEP_CHECK(loss.defined() && loss.dim() == 0 && at::isFloatingType(loss.scalar_type()),
                 "LossScaler::scale: the loss must be a 0-dimensional floating tensor, found ",
                 loss.defined() ? c10::str(loss.scalar_type(), loss.sizes()) : "no tensor",
                 ": reduce it with mean() or sum()");
  scaled_ = true;
  return loss.to(at::kFloat) * scale_tensor();
}

void LossScaler::update(const at::Tensor& overflow) {
  LOCKSTEP_CHECK(overflow.defined() && overflow.numel() == 1 &&
                     overflow.scalar_type() == at::kFloat && overflow.device() == storage_.device(),
                 "LossScaler::update: the overflow flag must be one fp32 element on ",
                 storage_.device().str());
  advance_by(overflow);
}

void LossScaler::update(bool overflow) {
  advance_by(at::full({}, overflow ? 1.0F : 0.0F, storage_.options().dtype(at::kFloat)));
}

void LossScaler::advance_by(const at::Tensor& overflow) {
  scaled_ = false;
  rounds_.clear();
  const ScalerRule rule = scaler_rule(options_);
  auto* state = static_cast<ScalerState*>(storage_.mutable_data_ptr());
  if (storage_.is_cuda()) {
    advance_on_cuda(state, rule, overflow.const_data_ptr<float>(), storage_.device());
  } else {
    advance(*state, rule, !(overflow.item<float>() == 0.0F));
  }
}

double LossScaler::value() const {
  return scale_tensor().item<float>();
}

ScalerState LossScaler::state() const {
  ScalerState state;
  if (options_.enabled()) {
    std::memcpy(&state, storage_.cpu().const_data_ptr(), sizeof(state));
  } else {
    state.scale = 0.0F;
  }
  return state;
}

void LossScaler::load(const ScalerState& state) {
  if (!options_.enabled()) {
    return;
  }
  LOCKSTEP_CHECK(state.scale != 0.0F,
                 "LossScaler::load: the saved scale is 0: the state comes from a disabled scaler, "
                 "which has none; start with a new scaler, or disable this one too");
  store(state);
}

void LossScaler::store(const ScalerState& state) {
  LOCKSTEP_CHECK(std::isfinite(state.scale) && state.scale > 0.0F,
                 "LossScaler::load: the saved scale is ", state.scale,
                 ", a scaler's is finite and positive");
  LOCKSTEP_CHECK(state.growth_tracker >= 0 && state.hysteresis_tracker >= 1 &&
                     state.consecutive_skips >= 0 && state.iteration >= 0 &&
                     state.last_overflow >= -1 && state.last_overflow < state.iteration &&
                     state.skipped >= 0 && state.skipped <= state.iteration,
                 "LossScaler::load: the saved counters cannot come from a scaler: growth_tracker ",
                 state.growth_tracker, ", hysteresis_tracker ", state.hysteresis_tracker,
                 ", consecutive_skips ", state.consecutive_skips, ", iteration ", state.iteration,
                 ", last_overflow ", state.last_overflow, ", skipped ", state.skipped);
  at::Tensor host = at::empty({static_cast<int64_t>(sizeof(state))}, at::kByte);
  std::memcpy(host.mutable_data_ptr(), &state, sizeof(state));
  storage_.copy_(host);
}

at::Tensor state_bytes(LossScaler& scaler) {
  return scaler.storage_;
}

namespace {

using torch::optim::Optimizer;

void for_each_gradient(Optimizer& optimizer, const std::function<void(at::Tensor&)>& body) {
  for (auto& group : optimizer.param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined()) {
        body(parameter);
      }
    }
  }
}

std::optional<std::string> dtype_problem(const at::Tensor& parameter) {
  const at::ScalarType dtype = c10::toRealValueType(parameter.grad().scalar_type());
  const std::string which = c10::str("a parameter of sizes ", parameter.sizes());
  if (dtype == at::kHalf || dtype == at::kBFloat16) {
    return c10::str("LossScaler: ", which, " has ", dtype,
                    " gradients; unscaled in 16 bits the small ones would be lost: keep fp32 "
                    "weights under amp::Autocast, or let a Trainer with Precision::O2() unscale "
                    "them into fp32 masters");
  }
  if (dtype != at::kFloat) {
    return c10::str("LossScaler: ", which, " has ", dtype,
                    " gradients; only fp32 ones can be unscaled: convert the model with "
                    "to(torch::kFloat), or train it without a scaler");
  }
  return std::nullopt;
}

/// The optimizer's gradients as dense tensors that share memory with grad().
std::optional<std::string> gradients_of(Optimizer& optimizer, std::vector<at::Tensor>& gradients) {
  std::optional<std::string> problem;
  for_each_gradient(optimizer, [&](at::Tensor& parameter) {
    if (!problem) {
      problem = dtype_problem(parameter);
    }
    at::Tensor& gradient = parameter.mutable_grad();
    if (detail::is_lazy(gradient)) {
      gradient = detail::applied(gradient.detach());
    }
    if (gradient.is_sparse()) {
      gradient = gradient.coalesce();
      gradients.push_back(gradient._values());
    } else if (gradient.is_complex()) {
      gradients.push_back(at::view_as_real(gradient));
    } else {
      gradients.push_back(gradient);
    }
  });
  if (!problem && gradients.empty()) {
    problem =
        "LossScaler: no parameter of the optimizer has a gradient: call "
        "scale(loss).backward() before unscale_() or step()";
  }
  return problem;
}

void require_single_evaluation(const Optimizer& optimizer) {
  LOCKSTEP_CHECK(dynamic_cast<const torch::optim::LBFGS*>(&optimizer) == nullptr,
                 "LossScaler: LBFGS evaluates a closure several times in one step, so its "
                 "gradients cannot be unscaled once: use a first-order optimizer, or no scaler");
}

}  // namespace

LossScaler::Round* LossScaler::find(const Optimizer& optimizer) {
  const auto found = std::find_if(rounds_.begin(), rounds_.end(), [&](const Round& round) {
    return round.optimizer == &optimizer;
  });
  return found == rounds_.end() ? nullptr : &*found;
}

std::vector<at::Tensor> LossScaler::unscaled(const std::vector<at::Tensor>& gradients) const {
  const at::Tensor inverse = scale_tensor().to(at::kDouble).reciprocal().to(at::kFloat);
  std::vector<at::Tensor> result;
  for (const at::Tensor& gradient : gradients) {
    const bool narrow = gradient.defined() && !gradient.is_complex();
    const at::Tensor wide = narrow ? gradient.to(at::kFloat) : gradient;
    result.push_back(wide.defined() ? wide * inverse : wide);
  }
  return result;
}

bool LossScaler::unscale_gradients(Optimizer& optimizer) {
  require_single_evaluation(optimizer);
  if (!options_.enabled()) {
    return false;
  }
  bool overflow = false;
  const auto unscale = [&] {
    std::vector<at::Tensor> gradients;
    const auto problem = gradients_of(optimizer, gradients);
    LOCKSTEP_CHECK(!problem, *problem);
    at::Tensor found = at::zeros({}, scale_tensor().options());
    const at::Tensor inverse = scale_tensor().to(at::kDouble).reciprocal().to(at::kFloat);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse);
    overflow = found.item<float>() != 0.0F;
  };
  if (!communicator_) {
    unscale();
    return overflow;
  }
  const detail::Agreement agreement(*communicator_);
  agreement.attempt(unscale);
  return agreement.any(overflow);
}

void LossScaler::unscale_(Optimizer& optimizer) {
  LOCKSTEP_CHECK(scaled_,
                 "LossScaler::unscale_: no loss was scaled since the last update(): call "
                 "scale(loss).backward() first");
  if (const Round* round = find(optimizer)) {
    throw Error(round->stage == Stage::unscaled
                    ? "LossScaler::unscale_: this optimizer's gradients are unscaled already: call "
                      "unscale_() once between two update()s"
                    : "LossScaler::unscale_: this optimizer has stepped already: unscale_() comes "
                      "before step(), then update()");
  }
  const bool overflow = unscale_gradients(optimizer);
  rounds_.push_back({&optimizer, Stage::unscaled, overflow});
}

bool LossScaler::step(Optimizer& optimizer) {
  if (find(optimizer) == nullptr) {
    unscale_(optimizer);
  }
  return step_with(optimizer, {this});
}

bool LossScaler::step_with(Optimizer& optimizer, const std::vector<LossScaler*>& scalers) {
  bool overflow = false;
  for (LossScaler* scaler : scalers) {
    Round* round = scaler->find(optimizer);
    LOCKSTEP_CHECK(round != nullptr,
                   "LossScaler::step_with: one of the scalers has no gradients of this optimizer: "
                   "call its backward(loss, optimizer) first");
    LOCKSTEP_CHECK(round->stage == Stage::unscaled,
                   "LossScaler::step: this optimizer has stepped already: call update() before the "
                   "next step()");
    overflow = overflow || round->overflow;
  }
  for (LossScaler* scaler : scalers) {
    scaler->find(optimizer)->stage = Stage::stepped;
  }
  if (!overflow) {
    optimizer.step();
  }
  return !overflow;
}

void LossScaler::update() {
  LOCKSTEP_CHECK(scaled_,
                 "LossScaler::update: no loss was scaled since the last update(): call "
                 "scale(loss).backward() and step(optimizer) first");
  LOCKSTEP_CHECK(!rounds_.empty(),
                 "LossScaler::update: no optimizer was stepped or unscaled since the last "
                 "update(), so there is no overflow flag: call step(optimizer) first");
  const bool overflow = std::any_of(rounds_.begin(), rounds_.end(),
                                    [](const Round& round) { return round.overflow; });
  check_skip_budget(options_, state());
  update(overflow);
}

void LossScaler::backward(const at::Tensor& loss, Optimizer& optimizer,
                          const std::function<void()>& finish) {
  Round* round = find(optimizer);
  LOCKSTEP_CHECK(round == nullptr || round->stage == Stage::unscaled,
                 "LossScaler::backward: this optimizer has stepped already: call update() first");
  std::vector<std::pair<at::Tensor, at::Tensor>> earlier;
  for_each_gradient(optimizer, [&](at::Tensor& parameter) {
    earlier.emplace_back(parameter, parameter.grad());
    parameter.mutable_grad().reset();
  });
  scale(loss).backward();
  if (finish) {
    finish();
  }
  const bool overflow = unscale_gradients(optimizer);
  for (auto& [parameter, sum] : earlier) {
    at::Tensor& gradient = parameter.mutable_grad();
    gradient = gradient.defined() ? gradient.add_(sum) : sum;
  }
  if (round == nullptr) {
    rounds_.push_back({&optimizer, Stage::unscaled, overflow});
  } else {
    round->overflow = round->overflow || overflow;
  }
}

}  // namespace lockstep::amp
