#include <lockstep/amp/impl/cast_kernels.h>
#include <lockstep/amp/update/lane_sums.h>
#include <lockstep/amp/update/measure.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>

#include <algorithm>
#include <cmath>

namespace lockstep::amp {

namespace {

constexpr int64_t kBlock = 1024;  // elements: a multiple of the lanes

double sum_halves(const at::Tensor& flat) {
  const auto* values = static_cast<const uint16_t*>(flat.const_data_ptr());
  const int64_t size = flat.numel();
  LaneSums sums;
  alignas(64) float block[kBlock];
  for (int64_t i = 0; i < size; i += kBlock) {
    const int64_t count = std::min(kBlock, size - i);
    kernels::cast_scaled(block, at::kFloat, values + i, flat.scalar_type(), count, 1.0);
    add_squares(block, count, sums);
  }
  return sums.total();
}

template <typename T>
double sum_direct(const at::Tensor& flat) {
  LaneSums sums;
  add_squares(flat.const_data_ptr<T>(), flat.numel(), sums);
  return sums.total();
}

/// A finite fp64 element may have a square that is not.
bool all_finite(const at::Tensor& flat) {
  const double* values = flat.const_data_ptr<double>();
  return std::all_of(values, values + flat.numel(), [](double x) { return std::isfinite(x); });
}

}  // namespace

Measure measure(const at::Tensor& flat) {
  LOCKSTEP_CHECK(flat.defined() && flat.is_cpu() && flat.is_contiguous(),
                 "measure: expected a contiguous tensor on the CPU, found ",
                 flat.defined() ? flat.toString() : "an undefined one");
  switch (flat.scalar_type()) {
    case at::kDouble: {
      const double sum = sum_direct<double>(flat);
      return {std::isfinite(sum) || all_finite(flat), sum};
    }
    case at::kFloat: {
      const double sum = sum_direct<float>(flat);
      return {std::isfinite(sum), sum};
    }
    case at::kHalf:
    case at::kBFloat16: {
      const double sum = sum_halves(flat);
      return {std::isfinite(sum), sum};
    }
    default:
      throw Error(c10::str("measure: dtype is ", flat.scalar_type(),
                           ", expected Float, Half, BFloat16 or Double"));
  }
}

}  // namespace lockstep::amp
