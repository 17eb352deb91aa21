#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <lockstep/amp/cuda/cuda_call.h>
#include <lockstep/amp/cuda/row_launch.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/layers/layer_passes.h>

namespace lockstep::amp {

namespace {

Rows rows_of(const at::Tensor& tensor) {
  const int64_t size = tensor.size(-1);
  return {elements_of(tensor), size == 0 ? 0 : tensor.numel() / size, size};
}

const float* values_of(const at::Tensor& parameter) {
  return parameter.defined() ? parameter.const_data_ptr<float>() : nullptr;
}

NormWork work_of(const NormPass& pass) {
  return {rows_of(pass.x),      values_of(pass.weight),
          values_of(pass.bias), reinterpret_cast<RowNorm*>(pass.norms.mutable_data_ptr<float>()),
          pass.centred,         pass.eps};
}

CrossEntropyWork work_of(const CrossEntropyPass& pass) {
  return {rows_of(pass.logits), pass.targets.const_data_ptr<int64_t>(),
          pass.log_sums.mutable_data_ptr<float>(), pass.smoothing, pass.ignore_index};
}

at::Tensor fp32_beside(const at::Tensor& x, at::IntArrayRef sizes) {
  return at::empty(sizes, x.options().dtype(at::kFloat));
}

}  // namespace

void norm_on_cuda(const NormPass& pass, const at::Tensor& y) {
  const c10::DeviceGuard on(y.device());
  check_call(cuda::launch_norm(work_of(pass), rows_of(y), current_stream(y.device())),
             "the norm's kernel");
}

at::Tensor norm_backward_on_cuda(const NormPass& pass, const at::Tensor& dx, const at::Tensor& dy) {
  const c10::DeviceGuard on(dx.device());
  void* const stream = current_stream(dx.device());
  const NormWork work = work_of(pass);
  at::Tensor parts;
  at::Tensor sums;
  if (pass.weight.defined()) {
    parts = fp32_beside(dx, {2, row_parts(work.x.rows), work.x.size});
    sums = fp32_beside(dx, {2, work.x.size});
  }
  const auto data = [](const at::Tensor& given) {
    return given.defined() ? given.mutable_data_ptr<float>() : nullptr;
  };
  check_call(
      cuda::launch_norm_backward(work, rows_of(dx), rows_of(dy), data(parts), data(sums), stream),
      "the norm's kernel");
  return sums;
}

void bias_gelu_on_cuda(const at::Tensor& y, const at::Tensor& x, const at::Tensor& bias) {
  const c10::DeviceGuard on(y.device());
  check_call(
      cuda::launch_bias_gelu({rows_of(x), values_of(bias)}, rows_of(y), current_stream(y.device())),
      "the bias and GELU kernel");
}

at::Tensor bias_gelu_backward_on_cuda(const at::Tensor& dx, const at::Tensor& dy,
                                      const at::Tensor& x, const at::Tensor& bias) {
  const c10::DeviceGuard on(dx.device());
  const at::Tensor parts = fp32_beside(dx, {row_parts(rows_of(x).rows), x.size(-1)});
  at::Tensor sum = fp32_beside(dx, {x.size(-1)});
  check_call(
      cuda::launch_bias_gelu_backward({rows_of(x), values_of(bias)}, rows_of(dx), rows_of(dy),
                                      parts.mutable_data_ptr<float>(),
                                      sum.mutable_data_ptr<float>(), current_stream(dx.device())),
      "the bias and GELU kernel");
  return sum;
}

at::Tensor cross_entropy_on_cuda(const CrossEntropyPass& pass) {
  const c10::DeviceGuard on(pass.logits.device());
  const at::Tensor losses = at::empty({pass.logits.size(0)}, pass.counted.options());
  at::Tensor loss = fp32_beside(pass.logits, {});
  check_call(cuda::launch_cross_entropy(
                 work_of(pass), losses.mutable_data_ptr<double>(), loss.mutable_data_ptr<float>(),
                 pass.counted.mutable_data_ptr<double>(), current_stream(loss.device())),
             "the cross-entropy kernel");
  return loss;
}

void cross_entropy_backward_on_cuda(const CrossEntropyPass& pass, const at::Tensor& gradient,
                                    const at::Tensor& slope) {
  const c10::DeviceGuard on(gradient.device());
  check_call(cuda::launch_cross_entropy_backward(
                 work_of(pass), rows_of(gradient), slope.const_data_ptr<float>(),
                 pass.counted.const_data_ptr<double>(), current_stream(gradient.device())),
             "the cross-entropy kernel");
}

}  // namespace lockstep::amp
