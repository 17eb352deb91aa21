#include <lockstep/amp/flat_rule.h>
#include <lockstep/amp/lamb_rule.h>
#include <lockstep/amp/optimizers.h>

namespace lockstep {

namespace {

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

template <typename Spec>
std::string decay_and_moments(const Spec& spec) {
  return c10::str(" weight_decay ", spec.weight_decay(), amp::describe_moments(spec.moments()));
}

}  // namespace

std::shared_ptr<const amp::UpdateRule> AdamW::own_rule() const {
  return amp::flat_rule(amp::AdamWUpdate{hyperparameters(*this)}, moments_);
}
std::string AdamW::describe_options() const {
  return decay_and_moments(*this);
}
void AdamW::check_options() const {
  check_betas_and_eps(*this);
}

std::shared_ptr<const amp::UpdateRule> Adam::own_rule() const {
  return amp::flat_rule(amp::AdamUpdate{hyperparameters(*this)}, moments_);
}
std::string Adam::describe_options() const {
  return decay_and_moments(*this);
}
void Adam::check_options() const {
  check_betas_and_eps(*this);
}

std::shared_ptr<const amp::UpdateRule> LAMB::own_rule() const {
  return std::make_shared<amp::LambRule>(amp::LambUpdate{hyperparameters(*this)}, moments_);
}
std::string LAMB::describe_options() const {
  return decay_and_moments(*this);
}
void LAMB::check_options() const {
  check_betas_and_eps(*this);
}

}  // namespace lockstep
