#include <lockstep/amp/casting/cast_kernels.h>
#include <lockstep/amp/cuda/cuda_kernels.h>
#include <lockstep/amp/update/error_feedback.h>
#include <lockstep/amp/update/flat_kernels.h>
#include <lockstep/amp/update/measure.h>

namespace lockstep::amp {
namespace {

/// The elements in memory order.
at::Tensor in_a_row(const at::Tensor& dense) {
  return !dense.defined() || dense.dim() == 1 ? dense : dense.as_strided({dense.numel()}, {1});
}

}  // namespace

void cast_flat(const at::Tensor& to, const at::Tensor& from, double factor) {
  const bool any_double = to.scalar_type() == at::kDouble || from.scalar_type() == at::kDouble;
  if (any_double && to.scalar_type() != from.scalar_type()) {
    in_a_row(to).copy_(in_a_row(from).to(at::kDouble).mul_(factor));
    return;
  }
  if (to.is_cuda()) {
    cast_on_cuda(in_a_row(to), in_a_row(from), factor);
    return;
  }
  kernels::cast_scaled(to.mutable_data_ptr(), to.scalar_type(), from.const_data_ptr(),
                       from.scalar_type(), to.numel(), factor);
}

void cast_with_feedback(const at::Tensor& wire, const at::Tensor& gradient, double factor,
                        const at::Tensor& residuals, const FeedbackState* state) {
  const Residuals arrays{
      {residuals[0].mutable_data_ptr<float>(), residuals[1].mutable_data_ptr<float>()}};
  if (wire.is_cuda()) {
    cast_with_feedback_on_cuda(wire, in_a_row(gradient), factor, arrays, state);
    return;
  }
  const bool given = gradient.defined();
  cast_with_feedback(
      wire.mutable_data_ptr(), wire.scalar_type(), given ? gradient.const_data_ptr() : nullptr,
      given ? gradient.scalar_type() : at::kFloat, wire.numel(), factor, arrays, *state);
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

void measure_into(const at::Tensor& flat, const at::Tensor& totals) {
  if (flat.is_cuda() && flat.scalar_type() == at::kDouble) {
    totals.select(0, 0).add_(flat.square().sum());
    totals.select(0, 1).add_(flat.isfinite().all().logical_not());
    return;
  }
  if (flat.is_cuda()) {
    measure_on_cuda(flat, totals);
    return;
  }
  const Measure bucket = measure(flat);
  double* sums = totals.mutable_data_ptr<double>();
  sums[0] += bucket.sum_squares;
  sums[1] += bucket.finite ? 0.0 : 1.0;
}

}  // namespace lockstep::amp
