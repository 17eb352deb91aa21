#include <lockstep/amp/flat_rule.h>
#include <lockstep/amp/grouped.h>
#include <lockstep/amp/hyperparameters.h>
#include <lockstep/amp/optimizers.h>

#include <utility>

namespace lockstep {

Adam& Adam::group(std::function<bool(const ModelTensor&)> picks, const Adam& options) {
  predicates_.push_back(std::move(picks));
  group_options_.push_back(options);
  return *this;
}

Adam& Adam::no_decay_on_norms_and_biases() {
  return group(is_norm_or_bias, Adam(lr_).beta1(beta1_).beta2(beta2_).eps(eps_).weight_decay(0.0));
}

std::shared_ptr<const amp::UpdateRule> Adam::rule(int group) const {
  const Adam& o = amp::options_of(*this, group_options_, group);
  return amp::flat_rule(amp::AdamUpdate{{o.lr_, o.beta1_, o.beta2_, o.eps_, o.weight_decay_}});
}

double Adam::learning_rate(int group) const {
  return amp::options_of(*this, group_options_, group).lr();
}

std::string Adam::describe() const {
  return c10::str("Adam lr ", lr_, " weight_decay ", weight_decay_, amp::count_groups(groups()));
}

void Adam::validate() const {
  amp::check_not_negative("Adam", "lr", lr_);
  amp::check_below_one("Adam", "beta1", beta1_);
  amp::check_below_one("Adam", "beta2", beta2_);
  amp::check_positive_fp32("Adam", "eps", eps_);
  amp::check_not_negative("Adam", "weight_decay", weight_decay_);
  amp::check_groups("Adam", predicates_, group_options_);
}

std::shared_ptr<OptimizerSpec> Adam::clone() const {
  return std::make_shared<Adam>(*this);
}

}  // namespace lockstep
