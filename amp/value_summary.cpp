#include <ATen/ops/empty.h>
#include <lockstep/amp/impl/cast_kernels.h>
#include <lockstep/amp/impl/value_summary.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/plain_tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::amp {

namespace {

constexpr int64_t kBlock = 1024;
constexpr double kSmallestNormalHalf = 6.103515625e-05;  // 2^-14

double largest_value(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return 65504.0;
    case at::kBFloat16:
      return 3.3895313892515355e38;
    case at::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

template <typename T>
void add_values(const T* values, int64_t size, ValueSummary& summary) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  T absmax = 0;
  for (int64_t i = 0; i < size; ++i) {
    const T magnitude = std::fabs(values[i]);
    summary.nans += magnitude != magnitude ? 1 : 0;
    summary.infs += magnitude == kInfinity ? 1 : 0;
    summary.zeros += magnitude == T(0) ? 1 : 0;
    summary.tiny += magnitude > T(0) && magnitude < T(kSmallestNormalHalf) ? 1 : 0;
    absmax = magnitude < kInfinity && magnitude > absmax ? magnitude : absmax;
  }
  summary.numel += size;
  summary.absmax = std::max(summary.absmax, static_cast<double>(absmax));
}

}  // namespace

ValueSummary summarise(const at::Tensor& tensor) {
  LOCKSTEP_CHECK(tensor.defined(), "summarise: expected a dense floating tensor, found none");
  const at::Tensor values = detail::plain(tensor.detach(), "summarise: the tensor");
  LOCKSTEP_CHECK(at::isFloatingType(values.scalar_type()),
                 "summarise: expected a dense floating tensor, found ", values.toString());
  const bool is_tiny = values.element_size() == 1;  // fp8
  const at::Tensor flat = (is_tiny ? values.to(at::kFloat) : values).cpu().contiguous();
  const int64_t size = flat.numel();
  ValueSummary summary;
  if (flat.scalar_type() == at::kFloat) {
    add_values(flat.const_data_ptr<float>(), size, summary);
  } else if (flat.scalar_type() == at::kDouble) {
    add_values(flat.const_data_ptr<double>(), size, summary);
  } else {
    const auto* values = static_cast<const uint16_t*>(flat.const_data_ptr());
    alignas(64) float block[kBlock];
    for (int64_t i = 0; i < size; i += kBlock) {
      const int64_t count = std::min(kBlock, size - i);
      kernels::cast_scaled(block, at::kFloat, values + i, flat.scalar_type(), count, 1.0);
      add_values(block, count, summary);
    }
  }
  return summary;
}

double ValueSummary::headroom_bits(at::ScalarType dtype) const {
  return std::log2(largest_value(dtype) / absmax);
}

std::string ValueSummary::describe() const {
  std::string counts;
  if (infs > 0) {
    counts += c10::str(infs, " inf");
  }
  if (nans > 0) {
    counts += c10::str(counts.empty() ? "" : ", ", nans, " NaN");
  }
  return c10::str(counts.empty() ? "finite" : counts + c10::str(" of ", numel), ", absmax ",
                  absmax);
}

}  // namespace lockstep::amp
