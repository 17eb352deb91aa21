#include <ATen/ops/empty.h>
#include <lockstep/amp/impl/cast_kernels.h>
#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/impl/flat_kernels.h>
#include <lockstep/amp/update/measure.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::amp {
namespace {

/// The elements in memory order, as a vector.
at::Tensor in_a_row(const at::Tensor& dense) {
  return !dense.defined() || dense.dim() == 1 ? dense : dense.as_strided({dense.numel()}, {1});
}

/// For fp64 on a device, which has no kernel for it.
void measure_fp64_part(const at::Tensor& values, const MeasuredParts& parts, int part,
                       const at::Tensor& sums) {
  const int64_t slots = sums.numel() / parts.count;
  const at::Tensor mine = sums.narrow(0, part * slots, slots).zero_();
  constexpr double kLargest = 1e300;  // replaces an infinite sum of finite elements
  const at::Tensor sum = values.square().sum().clamp_max_(kLargest);
  mine.select(0, 0).copy_(sum.masked_fill(values.isfinite().all().logical_not(),
                                          std::numeric_limits<double>::quiet_NaN()));
}

void add(const Measure& bucket, const at::Tensor& totals) {
  double* sums = totals.mutable_data_ptr<double>();
  sums[0] += bucket.sum_squares;
  sums[1] += bucket.finite ? 0.0 : 1.0;
}

}  // namespace

at::Tensor part_of(const at::Tensor& flat, const MeasuredParts& parts, int part) {
  if (parts.each == 0) {
    return flat;
  }
  const int64_t begin = std::min(part * parts.each, flat.numel());
  return flat.narrow(0, begin, std::min(parts.each, flat.numel() - begin));
}

void cast_flat(const at::Tensor& to, const at::Tensor& from, double factor) {
  const bool any_double = to.scalar_type() == at::kDouble || from.scalar_type() == at::kDouble;
  if (any_double && to.scalar_type() != from.scalar_type()) {
    in_a_row(to).copy_(in_a_row(from).to(at::kDouble).mul(factor));
    return;
  }
  if (to.is_cuda()) {
    cast_on_cuda(in_a_row(to), in_a_row(from), factor);
    return;
  }
  kernels::cast_scaled(to.mutable_data_ptr(), to.scalar_type(), from.const_data_ptr(),
                       from.scalar_type(), to.numel(), factor);
}

void cast_all_flat(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                   double factor) {
  const auto is_double = [](const at::Tensor& t) { return t.scalar_type() == at::kDouble; };
  if (to.empty() || !to.front().is_cuda() || std::any_of(to.begin(), to.end(), is_double) ||
      std::any_of(from.begin(), from.end(), is_double)) {
    for (size_t i = 0; i < to.size(); ++i) {
      cast_flat(to[i], from[i], factor);
    }
    return;
  }
  std::vector<at::Tensor> targets, sources;
  for (size_t i = 0; i < to.size(); ++i) {
    targets.push_back(in_a_row(to[i]));
    sources.push_back(in_a_row(from[i]));
  }
  cast_all_on_cuda(targets, sources, factor);
}

void accumulate_flat(const at::Tensor& sum, const at::Tensor& from) {
  if (sum.scalar_type() == at::kDouble) {
    in_a_row(sum).add_(in_a_row(from));
    return;
  }
  if (sum.is_cuda()) {
    accumulate_on_cuda(in_a_row(sum), in_a_row(from));
    return;
  }
  kernels::accumulate(sum.mutable_data_ptr<float>(), from.const_data_ptr(), from.scalar_type(),
                      sum.numel());
}

void measure_into(const at::Tensor& flat, const at::Tensor& totals, const MeasuredParts& parts) {
  if (flat.is_cuda() && flat.scalar_type() == at::kDouble) {
    const at::Tensor sums = at::empty({parts.count}, totals.options());
    for (int part = 0; part < parts.count; ++part) {
      measure_fp64_part(part_of(flat, parts, part), parts, part, sums);
    }
    add_measured_on_cuda(sums, totals);
    return;
  }
  if (flat.is_cuda()) {
    measure_on_cuda(flat, totals, parts);
    return;
  }
  Measure bucket;
  for (int part = 0; part < parts.count; ++part) {
    const Measure one = measure(part_of(flat, parts, part));
    bucket.finite = bucket.finite && one.finite;
    bucket.sum_squares += one.sum_squares;
  }
  add(bucket, totals);
}

int64_t measured_sums(const MeasuredParts& parts, c10::Device device) {
  return device.is_cuda() ? measured_sums_on_cuda(parts) : parts.count;
}

/// NaN marks a part that is not finite: finite fp64 elements may have the sum inf.
void measure_part(const at::Tensor& own, const MeasuredParts& parts, int part,
                  const at::Tensor& sums) {
  if (own.is_cuda() && own.scalar_type() == at::kDouble) {
    measure_fp64_part(own, parts, part, sums);
    return;
  }
  if (own.is_cuda()) {
    const int64_t each = sums.numel() / parts.count;
    measure_part_on_cuda(own, parts, /*part=*/0, sums.narrow(0, part * each, each));
    return;
  }
  const Measure one = measure(own);
  sums.mutable_data_ptr<double>()[part] =
      one.finite ? one.sum_squares : std::numeric_limits<double>::quiet_NaN();
}

void add_measured(const at::Tensor& sums, const at::Tensor& totals) {
  if (sums.is_cuda()) {
    add_measured_on_cuda(sums, totals);
    return;
  }
  Measure bucket;
  for (int64_t part = 0; part < sums.numel(); ++part) {
    bucket.sum_squares += sums.const_data_ptr<double>()[part];
  }
  bucket.finite = !std::isnan(bucket.sum_squares);
  add(bucket, totals);
}

}  // namespace lockstep::amp
