#include <lockstep/amp/loss_scaler.h>
#include <lockstep/collectives/shared_error.h>

#include <ATen/ATen.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <functional>

namespace lockstep::amp {

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
  const at::ScalarType dtype = parameter.grad().scalar_type();
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
    if (gradient.is_sparse()) {
      gradient = gradient.coalesce();
      gradients.push_back(gradient._values());
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
    result.push_back(gradient.defined() ? gradient.to(at::kFloat) * inverse : gradient);
  }
  return result;
}

/// One word for all: the highest of every rank's overflow, unless a rank has a problem.
bool LossScaler::overflow_on_any_rank(bool overflow, const std::optional<std::string>& problem) {
  if (!communicator_) {
    LOCKSTEP_CHECK(!problem, *problem);
    return overflow;
  }
  const at::Tensor word = at::tensor({overflow ? 1.0F : 0.0F, problem ? 1.0F : 0.0F});
  communicator_->all_reduce(word, ReduceOp::max()).wait();
  const float* all = word.const_data_ptr<float>();
  if (all[1] != 0.0F) {
    throw_on_every_rank(*communicator_, problem);
  }
  return all[0] != 0.0F;
}

bool LossScaler::unscale_gradients(Optimizer& optimizer) {
  require_single_evaluation(optimizer);
  if (!options_.enabled()) {
    return false;
  }
  std::vector<at::Tensor> gradients;
  const auto problem = gradients_of(optimizer, gradients);
  bool overflow = false;
  if (!problem) {
    at::Tensor found = at::zeros({}, scale_tensor().options());
    const at::Tensor inverse = scale_tensor().to(at::kDouble).reciprocal().to(at::kFloat);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse);
    overflow = found.item<float>() != 0.0F;
  }
  return overflow_on_any_rank(overflow, problem);
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
