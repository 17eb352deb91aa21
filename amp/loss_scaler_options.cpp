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

namespace {

void check_count(const char* field, int64_t value, int64_t least) {
  LOCKSTEP_CHECK(value >= least && value <= std::numeric_limits<int32_t>::max(),
                 "LossScalerOptions: ", field, " is ", value, ", it must be at least ", least,
                 " and below 2^31");
}

}  // namespace

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
  LOCKSTEP_CHECK(growth_factor_ >= 1.0 && std::isfinite(growth_factor_),
                 "LossScalerOptions: growth_factor is ", growth_factor_,
                 ", it must be finite and at least 1");
  LOCKSTEP_CHECK(backoff_factor_ > 0.0 && backoff_factor_ <= 1.0,
                 "LossScalerOptions: backoff_factor is ", backoff_factor_,
                 ", it must be above 0 and at most 1");
  check_count("growth_interval", growth_interval_, 1);
  check_count("hysteresis", hysteresis_, 1);
  check_count("max_consecutive_skips", max_consecutive_skips_.value_or(0), 0);
}

}  // namespace lockstep::amp
