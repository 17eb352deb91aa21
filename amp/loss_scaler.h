#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/loss_scaler_options.h>
#include <lockstep/amp/scaler_state.h>

namespace lockstep::amp {

/// A loss scale that follows the overflow flag all ranks share.
///
/// The state lives on the device; scale(loss) and update(flag) never make the host wait, reading
/// value() does. Ranks: every rank must pass the same flag (a MAX all-reduce of 0/1), then the
/// scale has the same bits everywhere. Threads: one at a time.
/// Formula: see LossScalerOptions; the arithmetic is advance() in scaler_state.h.
class LossScaler {
 public:
  /// Throws Error for invalid options.
  explicit LossScaler(LossScalerOptions options = {}, c10::Device device = c10::kCPU);
  LossScaler(LossScaler&&) = default;
  LossScaler& operator=(LossScaler&&) = default;

  /// loss in fp32, times the scale; 0-dimensional floating tensor in, 0-dimensional fp32 out.
  at::Tensor scale(const at::Tensor& loss) const;
  /// The scale as a 0-dimensional fp32 tensor on the device: a view that follows update().
  at::Tensor scale_tensor() const;
  /// After each decided update: `overflow` is one fp32 element, 0 for clean.
  void update(const at::Tensor& overflow);
  void update(bool overflow);

  /// The scale. Waits for the device.
  double value() const;
  /// All counters. Waits for the device.
  ScalerState state() const;
  /// Takes over a saved state. Throws Error where it cannot come from a scaler: scale not finite
  /// or not positive, negative counters.
  void load(const ScalerState& state);

  const LossScalerOptions& options() const { return options_; }
  /// The state in device memory, for kernels.
  ScalerState* device_state();

 private:
  void advance_by(const at::Tensor& overflow);

  LossScalerOptions options_;
  at::Tensor storage_;  // sizeof(ScalerState) bytes on the device
};

/// LossScalerOptions as the plain data that advance() takes. Throws Error for invalid options.
ScalerRule scaler_rule(const LossScalerOptions& options);

/// The state before the first update.
ScalerState initial_state(const LossScalerOptions& options);

/// Throws Error (exit code non_finite) once options.max_consecutive_skips() updates in a row were
/// skipped; says what the scale was and which cause that points to.
void check_skip_budget(const LossScalerOptions& options, const ScalerState& state);

}  // namespace lockstep::amp
