#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::amp {

/// The result of one pass over a reduced bucket.
struct Measure {
  bool finite = true;
  double sum_squares = 0.0;  // undefined if not finite
};

/// `flat`: contiguous, fp32, fp16, bf16 or fp64, CPU. Sums in double over 16 fixed lanes, so the
/// bits do not depend on the SIMD width of the machine.
Measure measure(const at::Tensor& flat);

}  // namespace lockstep::amp
