#pragma once

#include <lockstep/amp/host_device.h>

#include <cstdint>

namespace lockstep::amp {

/// What becomes of a wire gradient before the optimizer sees it: unscaled, clipped by norm (both in
/// `factor`), then clipped by value.
struct GradientScale {
  float factor;
  float limit;
  LOCKSTEP_HOST_DEVICE float operator()(float gradient) const {
    const float scaled = gradient * factor;
    return scaled > limit ? limit : (scaled < -limit ? -limit : scaled);
  }
};

/// What one update's kernels read, in memory of the device they run on: filled in once per update
/// by the decision (after consensus), never by the host in between.
struct StepState {
  float gradient_factor = 1.0F;  // wire gradient * this = gradient: 1 / scale * clip coefficient
  float gradient_limit = 3.4028234663852886e38F;  // then clipped to [-limit, limit]
  float learning_rate_factor = 1.0F;  // the schedule's factor; multiplies each group's own rate
  int64_t update = 1;                 // number of this update, from 1: bias corrections use it
  bool skip = false;                  // overflow or error somewhere: kernels write nothing
  double learning_rate = -1.0;        // the group's, before that factor; negative: the rule's own

  LOCKSTEP_HOST_DEVICE GradientScale gradient_scale() const {
    return {gradient_factor, gradient_limit};
  }
  /// Of a rule whose own rate is `rules`.
  LOCKSTEP_HOST_DEVICE double rate(double rules) const {
    return (learning_rate < 0.0 ? rules : learning_rate) * learning_rate_factor;
  }
};

/// `step` for an array whose group has a learning rate of its own, and which `missed` so many real
/// updates that others had: its own number counts for bias corrections. Null: as in `step`.
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

/// StepState::gradient_factor of a loss scale and a clip coefficient: rounded once, so that without
/// clipping it is the inverse scale of torch.amp.GradScaler.
LOCKSTEP_HOST_DEVICE float gradient_factor(double scale, double clip = 1.0) {
  return static_cast<float>(1.0 / scale * clip);
}

}  // namespace lockstep::amp
