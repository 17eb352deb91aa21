#include <lockstep/amp/flat_rule.h>
#include <lockstep/amp/optimizers.h>

namespace lockstep {

std::shared_ptr<const amp::UpdateRule> SGD::own_rule() const {
  if (momentum_ == 0.0) {
    return amp::flat_rule(amp::SgdUpdate{lr_, weight_decay_}, moments_);
  }
  return amp::flat_rule(amp::MomentumUpdate{lr_, momentum_, dampening_, weight_decay_, nesterov_},
                        moments_);
}

std::string SGD::describe_options() const {
  return c10::str(" momentum ", momentum_, " weight_decay ", weight_decay_,
                  amp::describe_moments(moments_));
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

}  // namespace lockstep
