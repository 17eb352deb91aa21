#pragma once

#include <lockstep/amp/cuda/element_pack.h>
#include <lockstep/amp/measure_totals.h>

namespace lockstep::amp {

/// What one thread does to one pack, for each kernel of this room. A kernel calls these for all
/// packs, in no order; the host's tests do the same.

/// to = from * factor, multiplied in fp32 and rounded once.
LOCKSTEP_HOST_DEVICE void cast_pack(const Elements& to, const Elements& from, int64_t size,
                                    float factor, int64_t pack) {
  float values[kPack];
  load(from, pack, size, values);
  for (float& value : values) {
    value *= factor;
  }
  store(to, pack, size, values);
}

/// cast_with_feedback() of one pack; `residual` and `next`, which may be one array, are fp32.
LOCKSTEP_HOST_DEVICE void feedback_pack(const Elements& wire, const Elements& gradient,
                                        const float* residual, float* next, int64_t size,
                                        float factor, float residual_factor, int64_t pack) {
  float sum[kPack];
  float rest[kPack];
  load(gradient, pack, size, sum);
  load_pack(residual, pack, size, rest);
  for (int k = 0; k < kPack; ++k) {
    sum[k] = sum[k] * factor + rest[k] * residual_factor;
    rest[k] = sum[k] - widened(narrowed_to(sum[k], wire.type), wire.type);
  }
  store(wire, pack, size, sum);
  store_pack(next, pack, size, rest);
}

/// sum += from.
LOCKSTEP_HOST_DEVICE void accumulate_pack(const Elements& sum, const Elements& from, int64_t size,
                                          int64_t pack) {
  float total[kPack];
  float values[kPack];
  load(sum, pack, size, total);
  load(from, pack, size, values);
  for (int k = 0; k < kPack; ++k) {
    total[k] += values[k];
  }
  store(sum, pack, size, total);
}

/// In fp64, so that finite elements have a finite sum.
LOCKSTEP_HOST_DEVICE double squares_of(const float (&values)[kPack]) {
  double sum = 0.0;
  for (const float value : values) {
    sum += static_cast<double>(value) * value;
  }
  return sum;
}

LOCKSTEP_HOST_DEVICE double squares_of_pack(const Elements& array, int64_t size, int64_t pack) {
  float values[kPack];
  load(array, pack, size, values);
  return squares_of(values);
}

}  // namespace lockstep::amp
