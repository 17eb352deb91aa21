#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <limits>
#include <optional>

namespace lockstep::amp {

/// When a dynamic loss scale grows.
enum class GrowthRule {
  /// After `growth_interval` clean updates in a row; growth and overflow restart the count
  /// (torch.amp.GradScaler, Apex LossScaler, Megatron DynamicGradScaler).
  clean_streak,
  /// When (iteration - last overflow - 1) is a positive multiple of the interval, so the first
  /// growth comes one update later (DeepSpeed DynamicLossScaler).
  iterations_since_overflow,
};

/// The loss scale policy. Presets give the published defaults of each system.
struct LossScalerOptions {
  static LossScalerOptions torch() { return {}; }  // GradScaler: 2^16, x2, x0.5, 2000
  static LossScalerOptions apex();                 // 2^16, window 2000, cap 2^24
  static LossScalerOptions deepspeed();            // 2^16, window 1000, hysteresis 2, floor 1
  static LossScalerOptions megatron();             // 2^32, window 1000, hysteresis 2, floor 1
  static LossScalerOptions fixed(double scale);    // never changes; overflow still skips
  static LossScalerOptions disabled();             // GradScaler(enabled=False)

  /// False: losses are not scaled, gradients not touched or looked at, every step is made.
  TORCH_ARG(bool, enabled) = true;

  /// False: the scale never changes. Overflow still skips the update.
  TORCH_ARG(bool, dynamic) = true;
  /// The scale of the first step. Requires: from min_scale to max_scale.
  TORCH_ARG(double, init_scale) = 65536.0;
  /// Requires: >= 1.
  TORCH_ARG(double, growth_factor) = 2.0;
  /// Requires: in (0, 1].
  TORCH_ARG(double, backoff_factor) = 0.5;
  /// Clean updates until the scale grows. Requires: >= 1, < 2^31.
  TORCH_ARG(int64_t, growth_interval) = 2000;
  TORCH_ARG(GrowthRule, growth_rule) = GrowthRule::clean_streak;
  /// Overflows that are forgiven before the scale backs off, plus one: 1 backs off at once.
  /// Requires: >= 1,
  /// < 2^31.
  TORCH_ARG(int64_t, hysteresis) = 1;
  /// True: the allowance refills at each clean update (DeepSpeed's consecutive_hysteresis, Apex's
  /// kernel). False: it refills only when the scale grows.
  TORCH_ARG(bool, consecutive_hysteresis) = false;
  /// The scale never falls below this. Requires: > 0 as fp32, so it never becomes 0.
  TORCH_ARG(double, min_scale) = 1.1754943508222875e-38;  // smallest normal fp32
  /// The scale never rises above this. Requires: >= min_scale, finite as fp32.
  TORCH_ARG(double, max_scale) = 1.7014118346046923e38;  // 2^127
  /// Skipped updates in a row after which the next step throws Error (exit code non_finite); 0:
  /// never. Requires: >= 0. Unset: 20, but while a dynamic scale still falls, the updates that it
  /// takes to fall to min_scale, or to 2^-16 where that is higher (below it only gradients above
  /// 4e9 overflow fp16): 32 from 65536 with the defaults. So no fall of the scale ends a run,
  /// whatever the scale starts from, is divided by and forgives; a fixed or disabled scale, at
  /// which nothing can change, gets the 20. The check is check_skip_budget() in loss_scaler.h.
  TORCH_ARG(std::optional<int64_t>, max_consecutive_skips) = std::nullopt;

 public:
  /// Throws Error naming the field.
  void validate() const;
};

}  // namespace lockstep::amp
