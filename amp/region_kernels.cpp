#include <ATen/core/Tensor.h>
#include <ATen/ops/batch_norm_ops.h>
#include <ATen/ops/group_norm_ops.h>
#include <ATen/ops/instance_norm_ops.h>
#include <ATen/ops/layer_norm_ops.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <lockstep/amp/region_kernels.h>
#include <torch/library.h>

#include <optional>

namespace lockstep::amp {

namespace {

using MaybeTensor = std::optional<at::Tensor>;

bool is_half(const MaybeTensor& tensor) {
  return tensor.has_value() && tensor->defined() &&
         (tensor->scalar_type() == at::kHalf || tensor->scalar_type() == at::kBFloat16);
}

/// An fp32 input of a norm with half parameters gets their dtype: LibTorch's norms take a half
/// input with fp32 parameters, but not the other way round.
template <typename... Parameters>
at::Tensor converted(const at::Tensor& input, const Parameters&... parameters) {
  at::ScalarType dtype = input.scalar_type();
  if (dtype == at::kFloat) {
    ((dtype = is_half(parameters) ? parameters->scalar_type() : dtype), ...);
  }
  return input.to(dtype);
}

at::Tensor batch_norm(c10::DispatchKeySet keys, const at::Tensor& input, const MaybeTensor& weight,
                      const MaybeTensor& bias, const MaybeTensor& mean, const MaybeTensor& variance,
                      bool training, double momentum, double eps, bool cudnn) {
  return at::_ops::batch_norm::redispatch(after_region_key(keys),
                                          converted(input, weight, bias, mean, variance), weight,
                                          bias, mean, variance, training, momentum, eps, cudnn);
}

at::Tensor instance_norm(c10::DispatchKeySet keys, const at::Tensor& input,
                         const MaybeTensor& weight, const MaybeTensor& bias,
                         const MaybeTensor& mean, const MaybeTensor& variance, bool of_input,
                         double momentum, double eps, bool cudnn) {
  return at::_ops::instance_norm::redispatch(after_region_key(keys),
                                             converted(input, weight, bias, mean, variance), weight,
                                             bias, mean, variance, of_input, momentum, eps, cudnn);
}

at::Tensor layer_norm(c10::DispatchKeySet keys, const at::Tensor& input, c10::SymIntArrayRef shape,
                      const MaybeTensor& weight, const MaybeTensor& bias, double eps, bool cudnn) {
  return at::_ops::layer_norm::redispatch(after_region_key(keys), converted(input, weight, bias),
                                          shape, weight, bias, eps, cudnn);
}

at::Tensor group_norm(c10::DispatchKeySet keys, const at::Tensor& input, int64_t groups,
                      const MaybeTensor& weight, const MaybeTensor& bias, double eps, bool cudnn) {
  return at::_ops::group_norm::redispatch(after_region_key(keys), converted(input, weight, bias),
                                          groups, weight, bias, eps, cudnn);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, AutocastIPU, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastIPU, library) {
  library.impl("batch_norm", &batch_norm);
  library.impl("instance_norm", &instance_norm);
  library.impl("layer_norm", &layer_norm);
  library.impl("group_norm", &group_norm);
}

RegionKernels::RegionKernels(bool enabled)
    : previous_included_(c10::impl::tls_is_dispatch_key_included(kRegionKey)),
      previous_excluded_(c10::impl::tls_is_dispatch_key_excluded(kRegionKey)) {
  c10::impl::tls_set_dispatch_key_included(kRegionKey, enabled);
  c10::impl::tls_set_dispatch_key_excluded(kRegionKey, !enabled);
}

RegionKernels::~RegionKernels() {
  c10::impl::tls_set_dispatch_key_included(kRegionKey, previous_included_);
  c10::impl::tls_set_dispatch_key_excluded(kRegionKey, previous_excluded_);
}

}  // namespace lockstep::amp
