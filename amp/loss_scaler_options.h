#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <limits>
#include <optional>

namespace lockstep::amp {

/// When a dynamic loss scale grows.
enum class GrowthRule {
  /// After `growth_interval` clean updates in a row; growth and overflow reset the count
  /// (torch.amp.GradScaler, Apex LossScaler, Megatron DynamicGradScaler).
  clean_streak,
  /// When (iteration - last overflow - 1) is a positive multiple of `growth_interval`, so the first
  /// growth comes one update later (DeepSpeed DynamicLossScaler).
  iterations_since_overflow,
};

/// The loss scale policy. The presets have the published defaults of each system.
struct LossScalerOptions {
  static LossScalerOptions torch() { return {}; }  // GradScaler: 2^16, x2, x0.5, 2000
  static LossScalerOptions apex();                 // 2^16, interval 2000, cap 2^24
  static LossScalerOptions deepspeed();            // 2^16, interval 1000, hysteresis 2, floor 1
  static LossScalerOptions megatron();             // 2^32, interval 1000, hysteresis 2, floor 1
  static LossScalerOptions fixed(double scale);    // never changes; overflow still skips
  static LossScalerOptions disabled();             // GradScaler(enabled=False)

  /// False: losses are not scaled, and a LossScaler neither changes nor checks gradients and skips
  /// no step. A Trainer checks and skips all the same.
  TORCH_ARG(bool, enabled) = true;

  /// False: the scale never changes. Overflow still skips the update.
  TORCH_ARG(bool, dynamic) = true;
  /// The scale of the first step. Requires: from min_scale to max_scale.
  TORCH_ARG(double, init_scale) = 65536.0;
  /// Requires: >= 1.
  TORCH_ARG(double, growth_factor) = 2.0;
  /// Requires: in (0, 1].
  TORCH_ARG(double, backoff_factor) = 0.5;
  /// Clean updates before the scale grows. Requires: >= 1, < 2^31.
  TORCH_ARG(int64_t, growth_interval) = 2000;
  TORCH_ARG(GrowthRule, growth_rule) = GrowthRule::clean_streak;
  /// The first overflow at which the scale backs off: 1 backs off at once, n tolerates n - 1
  /// overflows before. Requires: >= 1, < 2^31.
  TORCH_ARG(int64_t, hysteresis) = 1;
  /// True: each clean update resets the count of tolerated overflows (DeepSpeed's
  /// consecutive_hysteresis, Apex's kernel). False: only growth of the scale resets it.
  TORCH_ARG(bool, consecutive_hysteresis) = false;
  /// Lower bound of the scale. Requires: > 0 as fp32, so that the scale never becomes 0.
  TORCH_ARG(double, min_scale) = 1.1754943508222875e-38;  // smallest normal fp32
  /// Upper bound of the scale. Requires: >= min_scale, finite as fp32.
  TORCH_ARG(double, max_scale) = 1.7014118346046923e38;  // 2^127
  /// After this many skipped updates in a row the next step throws Error (exit code non_finite); 0:
  /// never. Requires: >= 0.
  /// Unset: 20, or more while a dynamic scale can still fall. Then the limit is the number of skips
  /// that take the scale down to min_scale or to 2^-16, whichever is higher (below 2^-16 only
  /// gradients above 4e9 overflow fp16): 32 from 65536 with the defaults. So a falling scale never
  /// ends a run, whatever init_scale, backoff_factor and hysteresis are. A fixed or disabled scale
  /// cannot fall, so its limit is 20. check_skip_budget() in loss_scaler.h makes the check.
  TORCH_ARG(std::optional<int64_t>, max_consecutive_skips) = std::nullopt;

 public:
  /// Throws Error that names the field if a field is invalid.
  void validate() const;
};

}  // namespace lockstep::amp
