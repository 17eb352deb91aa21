#include <lockstep/amp/impl/lamb_update.h>
#include <lockstep/amp/impl/optimizer_list.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/amp/update/flat_rule.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/option_list.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>

namespace lockstep {

namespace {

/// True if the last part of the name is like "bias", "bias_hh_l0" or "in_proj_bias".
bool names_bias(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  return last.rfind("bias", 0) == 0 ||
         (last.size() > 5 && last.compare(last.size() - 5, 5, "_bias") == 0);
}

template <typename Spec>
amp::AdamHyperparameters hyperparameters(const Spec& spec) {
  return {spec.lr(), spec.beta1(), spec.beta2(), spec.eps(), spec.weight_decay()};
}

template <typename Spec>
void check_betas_and_eps(const Spec& spec) {
  amp::check_below_one(Spec::kName, "beta1", spec.beta1());
  amp::check_below_one(Spec::kName, "beta2", spec.beta2());
  amp::check_positive_fp32(Spec::kName, "eps", spec.eps());
}

/// " beta1 0.8", empty for the default.
std::string unless_default(const char* name, double value, double usual) {
  return value == usual ? std::string() : c10::str(" ", name, " ", detail::shortest(value));
}

template <typename Spec>
std::string betas(const Spec& spec) {
  const Spec usual;
  return unless_default("beta1", spec.beta1(), usual.beta1()) +
         unless_default("beta2", spec.beta2(), usual.beta2());
}

template <typename Spec>
std::string decay_and_moments(const Spec& spec) {
  return c10::str(" weight_decay ", detail::shortest(spec.weight_decay()),
                  amp::describe_moments(spec.moments()));
}

template <typename Spec>
std::string describe_adam(const Spec& spec) {
  return betas(spec) + unless_default("eps", spec.eps(), Spec().eps()) + decay_and_moments(spec);
}

void check_parameters(const torch::optim::Optimizer& optimizer,
                      const std::vector<at::Tensor>& masters) {
  size_t held = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      ++held;
      const bool ours = std::any_of(masters.begin(), masters.end(), [&](const at::Tensor& master) {
        return master.is_same(parameter);
      });
      LOCKSTEP_CHECK(ours,
                     "TorchOptimizer: the factory's optimizer holds a parameter that is no master: "
                     "give it the tensors passed to the factory, not model->parameters()");
    }
  }
  LOCKSTEP_CHECK(held > 0, "TorchOptimizer: the factory's optimizer holds no parameter");
}

}  // namespace

bool is_norm_or_bias(const ModelTensor& parameter) {
  return parameter.in_norm || names_bias(parameter.name);
}

std::shared_ptr<const amp::UpdateRule> AdamW::own_rule() const {
  return amp::flat_rule(amp::AdamWUpdate{hyperparameters(*this)}, moments_);
}
std::string AdamW::describe_options() const {
  return describe_adam(*this);
}
void AdamW::check_options() const {
  check_betas_and_eps(*this);
}

std::shared_ptr<const amp::UpdateRule> Adam::own_rule() const {
  return amp::flat_rule(amp::AdamUpdate{hyperparameters(*this)}, moments_);
}
std::string Adam::describe_options() const {
  return describe_adam(*this);
}
void Adam::check_options() const {
  check_betas_and_eps(*this);
}

std::shared_ptr<const amp::UpdateRule> SGD::own_rule() const {
  if (momentum_ == 0.0) {
    return amp::flat_rule(amp::SgdUpdate{lr_, weight_decay_}, moments_);
  }
  return amp::flat_rule(amp::MomentumUpdate{lr_, momentum_, dampening_, weight_decay_, nesterov_},
                        moments_);
}
std::string SGD::describe_options() const {
  return c10::str(" momentum ", detail::shortest(momentum_),
                  unless_default("dampening", dampening_, 0.0), nesterov_ ? " nesterov" : "",
                  decay_and_moments(*this));
}
void SGD::check_options() const {
  amp::check_not_negative(kName, "momentum", momentum_);
  LOCKSTEP_CHECK(std::isfinite(dampening_), "SGD: dampening is ", dampening_,
                 ", it must be finite");
  LOCKSTEP_CHECK(!nesterov_ || (momentum_ > 0.0 && dampening_ == 0.0),
                 "SGD: nesterov needs momentum above 0 and dampening 0, found momentum ", momentum_,
                 " and dampening ", dampening_);
  LOCKSTEP_CHECK(momentum_ > 0.0 || moments_ == MomentFormat::fp32,
                 "SGD: moments is set, but without momentum there is none to keep");
}

std::shared_ptr<const amp::UpdateRule> LAMB::own_rule() const {
  return amp::flat_rule(amp::LambUpdate{hyperparameters(*this)}, moments_);
}
std::string LAMB::describe_options() const {
  return describe_adam(*this);
}
void LAMB::check_options() const {
  check_betas_and_eps(*this);
}

std::shared_ptr<const amp::UpdateRule> Lion::own_rule() const {
  return amp::flat_rule(amp::LionUpdate{lr_, beta1_, beta2_, weight_decay_}, moments_);
}
std::string Lion::describe_options() const {
  return betas(*this) + decay_and_moments(*this);
}
void Lion::check_options() const {
  amp::check_below_one(kName, "beta1", beta1_);
  amp::check_below_one(kName, "beta2", beta2_);
}

std::unique_ptr<torch::optim::Optimizer> TorchOptimizer::build(
    std::vector<at::Tensor> masters) const {
  validate();
  auto optimizer = factory_(masters);
  LOCKSTEP_CHECK(optimizer != nullptr, "TorchOptimizer: the factory returned no optimizer");
  LOCKSTEP_CHECK(dynamic_cast<torch::optim::LBFGS*>(optimizer.get()) == nullptr,
                 "TorchOptimizer: LBFGS evaluates a closure several times in one step, which a "
                 "shared step cannot do: use AdamW, Adam, SGD or another first-order optimizer");
  check_parameters(*optimizer, masters);
  return optimizer;
}

bool TorchOptimizer::needs_whole(const ModelTensor& parameter) const {
  return whole_ != nullptr && whole_(parameter);
}

std::string TorchOptimizer::describe() const {
  return "torch::optim optimizer from a factory";
}

void TorchOptimizer::validate() const {
  LOCKSTEP_CHECK(factory_ != nullptr, "TorchOptimizer: the factory is empty");
}

std::shared_ptr<OptimizerSpec> TorchOptimizer::clone() const {
  return std::make_shared<TorchOptimizer>(*this);
}

}  // namespace lockstep
