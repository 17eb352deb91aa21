#pragma once

#include <lockstep/collectives/reduce_op.h>

namespace lockstep::detail {

/// An average as a sum, with a factor on each element before it and one on the sum after it.
struct Averaging {
  double before = 1.0;
  double after = 1.0;
};

/// Divides before the sum by op.predivide_factor() or, if that is 1, by the smallest power of two
/// that is at least `ranks`: exact in every floating type, and the sum cannot overflow.
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
