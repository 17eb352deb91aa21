#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/host_device.h>

#include <cstdint>

namespace lockstep::amp {

/// Converts a wire gradient to the gradient that the optimizer uses: unscaled and clipped by norm
/// (both in `factor`), then clipped by value. T: float, or double for fp64 parameters.
template <typename T>
struct GradientScale {
  T factor;
  T limit;
  LOCKSTEP_HOST_DEVICE T operator()(T gradient) const {
    const T scaled = gradient * factor;
    return scaled > limit ? limit : (scaled < -limit ? -limit : scaled);
  }
};

/// The coefficients of one update (of an optimizer's step, not of a Trainer::step), which its
/// kernels read from the memory of their device. decide() writes them once; the host does not.
struct StepState {
  float gradient_factor = 1.0F;  // 1 / scale * clip coefficient; multiplies the wire gradient
  float gradient_limit = 3.4028234663852886e38F;  // then clip to [-limit, limit]
  float learning_rate_factor = 1.0F;  // of the schedule; multiplies each group's own rate
  int64_t update = 1;                 // number of this update, from 1; used by bias corrections
  bool skip = false;                  // overflow or error on some rank: kernels write nothing
  double learning_rate = -1.0;        // of the group, without the factor; negative: use the rule's

  LOCKSTEP_HOST_DEVICE GradientScale<float> gradient_scale() const {
    return {gradient_factor, gradient_limit};
  }
  /// The learning rate of this update, for a rule whose own rate is `rules`.
  LOCKSTEP_HOST_DEVICE double rate(double rules) const {
    return (learning_rate < 0.0 ? rules : learning_rate) * learning_rate_factor;
  }
};

/// The step state for an array whose group has its own learning rate, or which `missed` updates
/// that other arrays had: bias corrections use the number of updates of this array. A null argument
/// keeps the value of `step`.
LOCKSTEP_HOST_DEVICE StepState own_step(const StepState& step, const double* learning_rate,
                                        const int64_t* missed) {
  StepState own = step;
  if (learning_rate != nullptr) {
    own.learning_rate = *learning_rate;
  }
  if (missed != nullptr) {
    own.update -= *missed;
  }
  return own;
}

/// StepState::gradient_factor for a loss scale and a clip coefficient. Rounded once, so that
/// without clipping it equals the inverse scale of torch.amp.GradScaler.
LOCKSTEP_HOST_DEVICE float gradient_factor(double scale, double clip = 1.0) {
  return static_cast<float>(1.0 / scale * clip);
}

}  // namespace lockstep::amp
