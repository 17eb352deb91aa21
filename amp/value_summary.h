#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lockstep::amp {

/// What one pass over a tensor's values says about its range.
struct ValueSummary {
  int64_t numel = 0;
  int64_t infs = 0;
  int64_t nans = 0;
  int64_t zeros = 0;
  int64_t tiny = 0;     // not zero, below 2^-14: subnormal in fp16, so inexact or lost there
  double absmax = 0.0;  // of the finite values

  bool finite() const { return infs == 0 && nans == 0; }
  /// How many times absmax may double until `dtype` overflows: log2(largest value / absmax);
  /// negative where it does. Infinity for a tensor of zeros.
  double headroom_bits(at::ScalarType dtype) const;
  /// "3 inf, 1 NaN of 512, absmax 6.1e+04"
  std::string describe() const;
};

/// `tensor`: floating, dense, any strides, any device (copied to the host from there).
ValueSummary summarise(const at::Tensor& tensor);

}  // namespace lockstep::amp
