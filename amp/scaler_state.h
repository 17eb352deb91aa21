#pragma once

#include <lockstep/amp/host_device.h>

#include <cstdint>

namespace lockstep::amp {

/// The loss scale and its counters: plain data, in host or device memory, the same bits on every
/// rank. Saved and loaded as it is.
struct ScalerState {
  float scale = 65536.0F;
  int32_t growth_tracker = 0;      // clean updates since the last growth or overflow
  int32_t hysteresis_tracker = 1;  // overflows left until the scale backs off
  int32_t consecutive_skips = 0;
  int64_t iteration = 0;       // updates decided, clean or skipped
  int64_t last_overflow = -1;  // iteration of the last overflow
  int64_t skipped = 0;         // updates skipped in all
};

/// LossScalerOptions as plain data for kernels.
struct ScalerRule {
  float growth_factor;
  float backoff_factor;
  float min_scale;
  float max_scale;
  int32_t growth_interval;
  int32_t hysteresis;
  bool dynamic;
  bool consecutive_hysteresis;
  bool iterations_since_overflow;
};

/// The one place where a loss scale changes: after a decided update, from the consensus flag.
LOCKSTEP_HOST_DEVICE void advance(ScalerState& state, const ScalerRule& rule, bool overflow);

}  // namespace lockstep::amp
