#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstdint>

namespace lockstep::amp {

/// How the sum of squares of a flat array is made: each part of `each` elements is summed by
/// itself, then the sums of the parts are added in their order. So the bits depend on the parts,
/// and not on who measures which of them. The last parts may be short or empty.
struct MeasuredParts {
  int64_t each = 0;  // a multiple of 8; 0: the whole array
  int count = 1;
};

}  // namespace lockstep::amp
