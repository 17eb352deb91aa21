#include <lockstep/amp/flat_rule.h>
#include <lockstep/amp/optimizers.h>

namespace lockstep {

std::shared_ptr<const amp::UpdateRule> Lion::own_rule() const {
  return amp::flat_rule(amp::LionUpdate{lr_, beta1_, beta2_, weight_decay_}, moments_);
}

std::string Lion::describe_options() const {
  return c10::str(" weight_decay ", weight_decay_, amp::describe_moments(moments_));
}

void Lion::check_options() const {
  amp::check_below_one(kName, "beta1", beta1_);
  amp::check_below_one(kName, "beta2", beta2_);
}

}  // namespace lockstep
