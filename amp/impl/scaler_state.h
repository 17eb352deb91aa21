#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/host_device.h>

#include <cstdint>

namespace lockstep::amp {

/// The loss scale and its counters. Plain data in host or device memory, with the same bits on
/// every rank. Saved and loaded unchanged.
struct ScalerState {
  float scale = 65536.0F;
  int32_t growth_tracker = 0;      // clean updates since the last growth or overflow
  int32_t hysteresis_tracker = 1;  // overflows until the scale backs off, that one included
  int32_t consecutive_skips = 0;
  int64_t iteration = 0;       // updates so far, made or skipped
  int64_t last_overflow = -1;  // iteration of the last overflow
  int64_t skipped = 0;         // total of skipped updates
};

/// LossScalerOptions as plain data for kernels. The factors are fp64, so that their product with
/// the scale is rounded once, as in torch._amp_update_scale_.
struct ScalerRule {
  double growth_factor;
  double backoff_factor;
  float min_scale;
  float max_scale;
  int32_t growth_interval;
  int32_t hysteresis;
  bool dynamic;
  bool consecutive_hysteresis;
  bool iterations_since_overflow;
};

/// After an overflow: uses up one tolerated overflow, or backs off if none is left.
LOCKSTEP_HOST_DEVICE void advance_overflow(ScalerState& state, const ScalerRule& rule) {
  ++state.skipped;
  ++state.consecutive_skips;
  state.growth_tracker = 0;
  if (rule.dynamic) {
    if (state.hysteresis_tracker > 1) {
      --state.hysteresis_tracker;
    } else {
      const float lower = static_cast<float>(state.scale * rule.backoff_factor);
      state.scale = lower > rule.min_scale ? lower : rule.min_scale;
    }
  }
  state.last_overflow = state.iteration;
}

/// After a clean update: grows the scale when the rule says so. A growth beyond the range of fp32
/// is not made, as in torch.
LOCKSTEP_HOST_DEVICE void advance_clean(ScalerState& state, const ScalerRule& rule) {
  constexpr double kLargestFloat = 3.4028234663852886e38;
  state.consecutive_skips = 0;
  ++state.growth_tracker;
  if (rule.consecutive_hysteresis) {
    state.hysteresis_tracker = rule.hysteresis;
  }
  const int64_t stable = state.iteration - state.last_overflow - 1;
  const bool grows = rule.iterations_since_overflow
                         ? stable > 0 && stable % rule.growth_interval == 0
                         : state.growth_tracker >= rule.growth_interval;
  if (!grows) {
    return;
  }
  state.growth_tracker = 0;
  if (rule.dynamic) {
    state.hysteresis_tracker = rule.hysteresis;
    const double higher = state.scale * rule.growth_factor;
    if (higher <= kLargestFloat) {
      state.scale = higher < rule.max_scale ? static_cast<float>(higher) : rule.max_scale;
    }
  }
}

/// The only function that changes a loss scale. Called once per update, made or skipped, with the
/// overflow flag that all ranks share.
LOCKSTEP_HOST_DEVICE void advance(ScalerState& state, const ScalerRule& rule, bool overflow) {
  if (overflow) {
    advance_overflow(state, rule);
  } else {
    advance_clean(state, rule);
  }
  ++state.iteration;
}

}  // namespace lockstep::amp
