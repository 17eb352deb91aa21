#include <lockstep/collectives/check.h>
#include <lockstep/runtime/early_stopping.h>
#include <lockstep/runtime/trainer.h>

#include <cmath>
#include <limits>
#include <utility>

namespace lockstep {

void EarlyStoppingOptions::validate() const {
  LOCKSTEP_CHECK(patience_ >= 0, "EarlyStoppingOptions.patience must be >= 0, is ", patience_);
  LOCKSTEP_CHECK(min_delta_ >= 0.0, "EarlyStoppingOptions.min_delta must be >= 0, is ", min_delta_);
  LOCKSTEP_CHECK(!name_.empty(), "EarlyStoppingOptions.name must not be empty");
}

EarlyStopping::EarlyStopping(Trainer& trainer, EarlyStoppingOptions options)
    : trainer_(trainer),
      options_((options.validate(), std::move(options))),
      best_(std::numeric_limits<double>::infinity()) {
  trainer.state(options_.name() + ".best", best_);
  trainer.state(options_.name() + ".bad", bad_);
  trainer.state(options_.name() + ".update", update_);
}

bool EarlyStopping::update(const MetricValue& metric) {
  const bool prefers_lower =
      metric.prefers_lower(options_.lower_is_better(), "EarlyStoppingOptions::lower_is_better");
  const bool again = update_ == trainer_.updates() && !started_;
  started_ = true;
  if (again) {
    return stops();
  }
  update_ = trainer_.updates();
  if (std::isinf(best_)) {
    best_ = std::copysign(best_, prefers_lower ? 1.0 : -1.0);
  }
  const bool better = prefers_lower ? metric.value < best_ - options_.min_delta()
                                    : metric.value > best_ + options_.min_delta();
  if (better) {
    best_ = metric.value;
    bad_ = 0;
  } else {
    ++bad_;
  }
  return stops();
}

}  // namespace lockstep
