#include <lockstep/amp/impl/precision_options.h>
#include <lockstep/amp/loss_scaler_options.h>
#include <lockstep/collectives/check.h>

#include <cmath>

namespace lockstep::amp {

LossScalerOptions LossScalerOptions::apex() {
  return LossScalerOptions().max_scale(16777216.0);  // 2^24
}

LossScalerOptions LossScalerOptions::deepspeed() {
  return LossScalerOptions()
      .growth_interval(1000)
      .growth_rule(GrowthRule::iterations_since_overflow)
      .hysteresis(2)
      .min_scale(1.0);
}

LossScalerOptions LossScalerOptions::megatron() {
  return LossScalerOptions()
      .init_scale(4294967296.0)  // 2^32
      .growth_interval(1000)
      .hysteresis(2)
      .min_scale(1.0);
}

LossScalerOptions LossScalerOptions::fixed(double scale) {
  return LossScalerOptions().dynamic(false).init_scale(scale);
}

LossScalerOptions LossScalerOptions::disabled() {
  return fixed(1.0).enabled(false);
}

void LossScalerOptions::validate() const {
  const double least = static_cast<float>(min_scale_);
  const double most = static_cast<float>(max_scale_);
  LOCKSTEP_CHECK(least > 0.0 && std::isfinite(least), "LossScalerOptions: min_scale is ",
                 min_scale_, ", it must be positive and finite in fp32");
  LOCKSTEP_CHECK(most >= least && std::isfinite(most), "LossScalerOptions: max_scale is ",
                 max_scale_, ", it must be at least min_scale (", min_scale_,
                 ") and finite in fp32");
  LOCKSTEP_CHECK(init_scale_ >= min_scale_ && init_scale_ <= max_scale_,
                 "LossScalerOptions: init_scale is ", init_scale_, ", it must lie from min_scale (",
                 min_scale_, ") to max_scale (", max_scale_, ")");
  detail::require_ranges(detail::rows_of(*this));
}

}  // namespace lockstep::amp
