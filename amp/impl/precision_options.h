#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/precision.h>
#include <lockstep/collectives/impl/option_list.h>

#include <string>

/// The option lists of Precision and of its loss scaler.
namespace lockstep::detail {

LOCKSTEP_OPTION_NAMES(amp::GrowthRule, "clean_streak", "iterations_since_overflow");

LOCKSTEP_OPTION_LIST(amp::LossScalerOptions) {
  visit("enabled", options.enabled());
  visit("dynamic", options.dynamic());
  visit("init_scale", options.init_scale());
  visit("growth_factor", options.growth_factor(), ">= 1 and < inf");
  visit("backoff_factor", options.backoff_factor(), "> 0 and <= 1");
  visit("growth_interval", options.growth_interval(), ">= 1 and < 2147483648");
  visit("growth_rule", options.growth_rule());
  visit("hysteresis", options.hysteresis(), ">= 1 and < 2147483648");
  visit("consecutive_hysteresis", options.consecutive_hysteresis());
  visit("min_scale", options.min_scale());
  visit("max_scale", options.max_scale());
  visit("max_consecutive_skips", options.max_consecutive_skips(), ">= 0 and < 2147483648");
}

/// "fp32", "fp16", "bf16", or LibTorch's name.
template <>
std::string text_of(const c10::ScalarType& dtype);

LOCKSTEP_OPTION_NAMES(Precision::Level, "O0", "O1", "O2", "O3");

/// Of a const Precision the list also shows values that follow from other options.
template <>
struct OptionList<Precision> {
  static constexpr const char* kName = "Precision";

  template <typename Visit>
  static void each(Precision& precision, const Visit& visit) {
    visit("level", precision.level_);
    visit("compute", precision.compute_);
    visit("wire", precision.wire_);
    visit("keep_batchnorm_fp32", precision.keep_norms_);
    visit("keep_fp32", precision.keep_fp32_);
    visit("norms", precision.norms_);
    visit("predivide", precision.predivide_, "> 0 and < inf");
    visit("remainders", precision.remainders_);
    visit("stochastic_rounding", precision.stochastic_rounding_);
    visit("loss_scale", precision.loss_scale_);
  }
  template <typename Visit>
  static void each(const Precision& precision, const Visit& visit) {
    Precision shown = precision.loss_scale(precision.loss_scaler_options());
    shown.keep_norms_ = precision.keeps_norms_fp32();
    each(shown, visit);
  }
};

}  // namespace lockstep::detail
