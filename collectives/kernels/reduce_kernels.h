#pragma once

#include <c10/core/ScalarType.h>
#include <lockstep/collectives/reduce_op.h>

#include <cstdint>

namespace lockstep::kernels {

/// How elements are combined: destination = op(source 0 * before, source 1 * before, ...) /
/// divisor. `before` and `divisor` are 1 except for sums of floating-point numbers.
struct Reduction {
  ReduceOp::Kind kind = ReduceOp::Kind::sum;  // avg is a sum with a divisor
  double before = 1.0;
  double divisor = 1.0;
};

/// The Reduction of `op` over `ranks` ranks.
Reduction make_reduction(ReduceOp op, int ranks);

/// The type in which sums are computed: Float for Half and BFloat16, else the type itself.
inline c10::ScalarType sum_dtype(c10::ScalarType dtype) {
  const bool is_16_bit = dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16;
  return is_16_bit ? c10::ScalarType::Float : dtype;
}

/// Combines n elements of several sources, in the order of the sources, and writes the result to
/// every destination. float16 and bfloat16 are accumulated in fp32 and rounded once; float32,
/// float64 and integers are computed in their own type. The max or min of a NaN and a number is
/// NaN.
/// `in` and `out` are equal, or one is Float and the other Half or BFloat16. A destination may be a
/// source if the types are equal. Bits do not depend on the processor. Throws Error for other
/// types. Any thread.
void reduce(const Reduction& reduction, c10::ScalarType in, const void* const* sources,
            int source_count, c10::ScalarType out, void* const* destinations, int destination_count,
            int64_t n);

}  // namespace lockstep::kernels
