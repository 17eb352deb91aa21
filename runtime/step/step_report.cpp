#include <lockstep/runtime/step/impl/decisions.h>
#include <lockstep/runtime/step_report.h>

#include <cmath>

namespace lockstep {

int64_t StepReport::update() const {
  return decision_ ? decision_->read().updates : 0;
}

bool StepReport::skipped() const {
  return weight_ > 0.0 && decision_->read().skipped;
}

double StepReport::loss() const {
  return loss_.defined() ? loss_.item<double>() : 0.0;
}

double StepReport::mean_loss() const {
  return weight_ > 0.0 ? decision_->read().loss_sum / weight_ : std::nan("");
}

double StepReport::grad_norm() const {
  return weight_ > 0.0 ? decision_->read().grad_norm : std::nan("");
}

double StepReport::scale() const {
  if (!decision_) {
    return 1.0;
  }
  const amp::Decision& decision = decision_->read();
  return weight_ > 0.0 ? decision.scale : decision.scaler.scale;
}

double StepReport::learning_rate() const {
  if (!decision_) {
    return 0.0;
  }
  const amp::Decision& decision = decision_->read();
  return base_learning_rate_ *
         (weight_ > 0.0 ? decision.step.learning_rate_factor : schedule_.factor(decision.updates));
}

}  // namespace lockstep
