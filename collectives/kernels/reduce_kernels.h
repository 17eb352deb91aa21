#pragma once

#include <c10/core/ScalarType.h>
#include <lockstep/collectives/reduce_op.h>

#include <cstdint>

namespace lockstep::kernels {

/// How elements are combined: destination = op(source 0 * before, source 1 * before, ...) /
/// divisor. `before` and `divisor` are for sums of floating-point numbers and 1 otherwise.
struct Reduction {
  ReduceOp::Kind kind = ReduceOp::Kind::sum;  // avg counts as sum: its divisor says the rest
  double before = 1.0;
  double divisor = 1.0;
};

/// What an op means for `ranks` ranks.
Reduction make_reduction(ReduceOp op, int ranks);

/// In what a sum of elements of this type is computed: Float for Half and BFloat16, else the type
/// itself.
inline c10::ScalarType sum_dtype(c10::ScalarType dtype) {
  const bool is_16_bit = dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16;
  return is_16_bit ? c10::ScalarType::Float : dtype;
}

/// Combines n elements of several sources, in the order of the sources, and writes the result to
/// every destination. float16 and bfloat16 are accumulated in fp32 and rounded once; float32,
/// float64 and integers are computed in their own type. A NaN wins a max.
/// `in` and `out` are equal, or one is Float and the other Half or BFloat16. A destination may be
/// a source where they are equal. Bits do not depend on the processor. Throws Error for other
/// types. Any thread.
void reduce(const Reduction& reduction, c10::ScalarType in, const void* const* sources,
            int source_count, c10::ScalarType out, void* const* destinations, int destination_count,
            int64_t n);

}  // namespace lockstep::kernels
