#pragma once

#include <cstdint>

namespace lockstep::amp {

/// Sums of squares over 16 lanes in fp64: element i belongs to lane i % 16, so the additions and
/// their order are the same whatever the SIMD width.
struct LaneSums {
  static constexpr int kLanes = 16;
  alignas(64) double lanes[kLanes] = {};

  double total() const {
    double sum = 0.0;
    for (const double lane : lanes) {
      sum += lane;
    }
    return sum;
  }
};

/// Adds elements; `size` must be a multiple of 16, except in the last call.
void add_squares(const float* values, int64_t size, LaneSums& sums);
void add_squares(const double* values, int64_t size, LaneSums& sums);

}  // namespace lockstep::amp
