#include <lockstep/amp/flat_rule.h>
#include <lockstep/amp/grouped.h>
#include <lockstep/amp/hyperparameters.h>
#include <lockstep/amp/optimizers.h>

#include <utility>

namespace lockstep {

SGD& SGD::group(std::function<bool(const ModelTensor&)> picks, const SGD& options) {
  predicates_.push_back(std::move(picks));
  group_options_.push_back(options);
  return *this;
}

SGD& SGD::no_decay_on_norms_and_biases() {
  return group(
      is_norm_or_bias,
      SGD(lr_).momentum(momentum_).dampening(dampening_).nesterov(nesterov_).weight_decay(0.0));
}

std::shared_ptr<const amp::UpdateRule> SGD::rule(int group) const {
  const SGD& o = amp::options_of(*this, group_options_, group);
  if (o.momentum_ == 0.0) {
    return amp::flat_rule(amp::SgdUpdate{o.lr_, o.weight_decay_});
  }
  return amp::flat_rule(
      amp::MomentumUpdate{o.lr_, o.momentum_, o.dampening_, o.weight_decay_, o.nesterov_});
}

double SGD::learning_rate(int group) const {
  return amp::options_of(*this, group_options_, group).lr();
}

std::string SGD::describe() const {
  return c10::str("SGD lr ", lr_, " momentum ", momentum_, " weight_decay ", weight_decay_,
                  amp::count_groups(groups()));
}

void SGD::validate() const {
  amp::check_not_negative("SGD", "lr", lr_);
  amp::check_not_negative("SGD", "momentum", momentum_);
  LOCKSTEP_CHECK(std::isfinite(dampening_), "SGD: dampening is ", dampening_,
                 ", it must be finite");
  amp::check_not_negative("SGD", "weight_decay", weight_decay_);
  LOCKSTEP_CHECK(!nesterov_ || (momentum_ > 0.0 && dampening_ == 0.0),
                 "SGD: nesterov needs momentum above 0 and dampening 0, found momentum ", momentum_,
                 " and dampening ", dampening_);
  amp::check_groups("SGD", predicates_, group_options_);
}

std::shared_ptr<OptimizerSpec> SGD::clone() const {
  return std::make_shared<SGD>(*this);
}

}  // namespace lockstep
