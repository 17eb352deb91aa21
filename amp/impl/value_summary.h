#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lockstep::amp {

/// The range of the values of a tensor, from one pass over them.
struct ValueSummary {
  int64_t numel = 0;
  int64_t infs = 0;
  int64_t nans = 0;
  int64_t zeros = 0;
  int64_t tiny = 0;     // not zero but below 2^-14: subnormal in fp16, so inexact or lost there
  double absmax = 0.0;  // of finite values only

  bool finite() const { return infs == 0 && nans == 0; }
  /// How often absmax can double before `dtype` overflows: log2(largest value / absmax). Negative
  /// if absmax is too large already, infinity for a tensor of zeros.
  double headroom_bits(at::ScalarType dtype) const;
  /// "3 inf, 1 NaN of 512, absmax 6.1e+04"
  std::string describe() const;
};

/// Summarises a floating, dense tensor with any strides, on any device (copied to the host first).
ValueSummary summarise(const at::Tensor& tensor);

}  // namespace lockstep::amp
