#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <string>

namespace lockstep::amp {

/// Seconds that the host takes for a small matrix product and a small convolution, each forward and
/// backward, in a 16-bit dtype and in fp32.
struct ComputeSpeed {
  double product = 0.0;
  double product_fp32 = 0.0;
  double convolution = 0.0;
  double convolution_fp32 = 0.0;

  /// How many times as long as fp32 the dtype takes, for the slower of the two.
  double slowdown() const;
};

/// A dtype whose slowdown() exceeds this is slow.
constexpr double kSlowCompute = 5.0;

/// Runs and times both in `dtype` and in fp32: some ten milliseconds if the dtype is fast. Does not
/// change random numbers and gradients of the program. Any rank, any thread.
ComputeSpeed measure_compute_speed(c10::ScalarType dtype);
/// The same, measured once in a process for each dtype.
const ComputeSpeed& compute_speed(c10::ScalarType dtype);

/// A line of advice for computing in `dtype` on the host; empty unless the dtype is slow.
std::string slow_compute_advice(c10::ScalarType dtype, const ComputeSpeed& speed);

/// bf16 or fp16, in this order, if the processor has instructions for it and the dtype is not slow.
std::optional<c10::ScalarType> fast_16_bit_dtype(
    bool has_bf16, bool has_fp16, const std::function<double(c10::ScalarType)>& slowdown);

}  // namespace lockstep::amp
