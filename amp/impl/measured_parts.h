#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstdint>

namespace lockstep::amp {

/// Divides a flat array for its sum of squares: each part of `each` elements is summed alone, then
/// the sums are added in order. So the bits depend on the parts and not on which rank measures
/// which part. The last parts may be short or empty.
struct MeasuredParts {
  int64_t each = 0;  // a multiple of 8; 0: the whole array
  int count = 1;
};

}  // namespace lockstep::amp
