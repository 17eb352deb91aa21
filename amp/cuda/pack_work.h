#pragma once

#include <lockstep/amp/cuda/element_pack.h>
#include <lockstep/amp/impl/decision.h>

namespace lockstep::amp {

/// One thread's work on one pack, for each kernel. A kernel calls these for all packs, in any
/// order.

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

/// The sum of squares in fp64, so that finite elements have a finite sum.
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
