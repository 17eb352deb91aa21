#include <lockstep/amp/flat_rule.h>
#include <lockstep/amp/grouped.h>
#include <lockstep/amp/hyperparameters.h>
#include <lockstep/amp/optimizers.h>

#include <utility>

namespace lockstep {

AdamW& AdamW::group(std::function<bool(const ModelTensor&)> picks, const AdamW& options) {
  predicates_.push_back(std::move(picks));
  group_options_.push_back(options);
  return *this;
}

AdamW& AdamW::no_decay_on_norms_and_biases() {
  return group(is_norm_or_bias, AdamW(lr_).beta1(beta1_).beta2(beta2_).eps(eps_).weight_decay(0.0));
}

std::shared_ptr<const amp::UpdateRule> AdamW::rule(int group) const {
  const AdamW& o = amp::options_of(*this, group_options_, group);
  return amp::flat_rule(amp::AdamWUpdate{{o.lr_, o.beta1_, o.beta2_, o.eps_, o.weight_decay_}});
}

double AdamW::learning_rate(int group) const {
  return amp::options_of(*this, group_options_, group).lr();
}

std::string AdamW::describe() const {
  return c10::str("AdamW lr ", lr_, " weight_decay ", weight_decay_, amp::count_groups(groups()));
}

void AdamW::validate() const {
  amp::check_not_negative("AdamW", "lr", lr_);
  amp::check_below_one("AdamW", "beta1", beta1_);
  amp::check_below_one("AdamW", "beta2", beta2_);
  amp::check_positive_fp32("AdamW", "eps", eps_);
  amp::check_not_negative("AdamW", "weight_decay", weight_decay_);
  amp::check_groups("AdamW", predicates_, group_options_);
}

std::shared_ptr<OptimizerSpec> AdamW::clone() const {
  return std::make_shared<AdamW>(*this);
}

}  // namespace lockstep
