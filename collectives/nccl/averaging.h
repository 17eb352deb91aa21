#pragma once

#include <lockstep/collectives/reduce_op.h>

namespace lockstep::detail {

/// An average as a factor on each element, a sum, and a factor on the sum.
struct Averaging {
  double before = 1.0;
  double after = 1.0;
};

/// `predivide` as the caller set it; without it the smallest power of two that is not below
/// `ranks`: exact in every floating type, and the sum stays within the range of its terms.
inline Averaging averaging(ReduceOp op, int ranks) {
  double divisor = op.predivide_factor();
  if (divisor == 1.0) {
    while (divisor < ranks) {
      divisor *= 2.0;
    }
  }
  return {1.0 / divisor, divisor / ranks};
}

}  // namespace lockstep::detail
