#pragma once

#include <lockstep/amp/host_device.h>

#include <cstdint>

namespace lockstep::amp {

/// What error feedback knows of its residuals: plain data, in host or device memory. There are two
/// arrays of them, which change their parts with every update that is made: the kept one holds what
/// the last update's wires lost, the other takes what this window's lose. So a skipped update
/// leaves the kept ones as they are, and nobody copies or asks the host.
struct FeedbackState {
  int32_t kept = 0;
  float scale = 1.0F;   // the loss scale of the kept ones, their unit
  float factor = 1.0F;  // brings them to the unit of the coming window: its loss scale / `scale`
};

/// The two arrays, fp32, of the same span of a bucket.
struct Residuals {
  float* arrays[2];

  LOCKSTEP_HOST_DEVICE const float* kept(const FeedbackState& state) const {
    return state.kept == 0 ? arrays[0] : arrays[1];
  }
  LOCKSTEP_HOST_DEVICE float* next(const FeedbackState& state) const {
    return state.kept == 0 ? arrays[1] : arrays[0];
  }
};

/// After the update of a window whose gradients had the loss scale `scale`.
LOCKSTEP_HOST_DEVICE void advance(FeedbackState& state, bool skipped, float scale,
                                  float next_scale) {
  if (!skipped) {
    state.kept = 1 - state.kept;
    state.scale = scale;
  }
  state.factor = next_scale / state.scale;
}

}  // namespace lockstep::amp
