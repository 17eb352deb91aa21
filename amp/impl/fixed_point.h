#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::amp {

/// Sums that do not depend on the order of their terms: each term is rounded once, to a multiple of
/// 2^-fraction_bits, and the multiples are added as int64, without further rounding. The bits do
/// not depend on the processor. Host memory. Threads: any.
struct FixedPoint {
  /// Terms are smaller than this.
  static constexpr double kLimit = 16384.0;

  int fraction_bits = 0;

  /// The most fraction bits with which a sum of `terms` terms cannot overflow.
  static FixedPoint for_terms(int64_t terms);

  /// sums = terms if `first`, else sums += terms. `sums`: int64. `terms`: dense fp32, fp16 or bf16,
  /// as many elements, taken in memory order. False if an element was not finite or not smaller
  /// than kLimit; such an element counts as 0.
  bool add(const at::Tensor& sums, const at::Tensor& terms, bool first) const;
  /// to = sums * factor, rounded to fp32, then to the dtype of `to`: fp32, fp16 or bf16.
  void read(const at::Tensor& to, const at::Tensor& sums, double factor) const;
};

}  // namespace lockstep::amp
