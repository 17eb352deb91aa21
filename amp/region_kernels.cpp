#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/batch_norm_ops.h>
#include <ATen/ops/group_norm_ops.h>
#include <ATen/ops/instance_norm_ops.h>
#include <ATen/ops/layer_norm_ops.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <lockstep/amp/impl/region_kernels.h>
#include <torch/library.h>

#include <optional>
#include <utility>
#include <vector>

namespace lockstep::amp {

namespace {

using MaybeTensor = std::optional<at::Tensor>;

bool is_half(const MaybeTensor& tensor) {
  return tensor.has_value() && tensor->defined() &&
         (tensor->scalar_type() == at::kHalf || tensor->scalar_type() == at::kBFloat16);
}

bool is_fp32(const MaybeTensor& tensor) {
  return tensor.has_value() && tensor->defined() && tensor->scalar_type() == at::kFloat;
}

/// Converts the input of a norm so that LibTorch's kernels accept it: a half input with fp32 or
/// half parameters, or an fp32 input with fp32 parameters.
struct NormOperands {
  at::Tensor input;
  MaybeTensor weight;
  MaybeTensor bias;

  /// `statistics`: the running ones, which keep their dtype.
  template <typename... Statistics>
  NormOperands(const at::Tensor& x, const MaybeTensor& w, const MaybeTensor& b,
               const Statistics&... statistics)
      : input(x), weight(w), bias(b) {
    if (is_fp32(w) || is_fp32(b) || (is_fp32(statistics) || ...)) {
      weight = is_half(w) ? w->to(at::kFloat) : w;
      bias = is_half(b) ? b->to(at::kFloat) : b;
      return;
    }
    at::ScalarType dtype = x.scalar_type();
    if (dtype == at::kFloat) {
      const auto see = [&](const MaybeTensor& tensor) {
        dtype = is_half(tensor) ? tensor->scalar_type() : dtype;
      };
      see(w);
      see(b);
      (see(statistics), ...);
    }
    input = x.to(dtype);
  }
};

at::Tensor batch_norm(c10::DispatchKeySet keys, const at::Tensor& input, const MaybeTensor& weight,
                      const MaybeTensor& bias, const MaybeTensor& mean, const MaybeTensor& variance,
                      bool training, double momentum, double eps, bool cudnn) {
  const NormOperands norm(input, weight, bias, mean, variance);
  return at::_ops::batch_norm::redispatch(after_region_key(keys), norm.input, norm.weight,
                                          norm.bias, mean, variance, training, momentum, eps,
                                          cudnn);
}

at::Tensor instance_norm(c10::DispatchKeySet keys, const at::Tensor& input,
                         const MaybeTensor& weight, const MaybeTensor& bias,
                         const MaybeTensor& mean, const MaybeTensor& variance, bool of_input,
                         double momentum, double eps, bool cudnn) {
  const NormOperands norm(input, weight, bias, mean, variance);
  return at::_ops::instance_norm::redispatch(after_region_key(keys), norm.input, norm.weight,
                                             norm.bias, mean, variance, of_input, momentum, eps,
                                             cudnn);
}

at::Tensor layer_norm(c10::DispatchKeySet keys, const at::Tensor& input, c10::SymIntArrayRef shape,
                      const MaybeTensor& weight, const MaybeTensor& bias, double eps, bool cudnn) {
  const NormOperands norm(input, weight, bias);
  return at::_ops::layer_norm::redispatch(after_region_key(keys), norm.input, shape, norm.weight,
                                          norm.bias, eps, cudnn);
}

at::Tensor group_norm(c10::DispatchKeySet keys, const at::Tensor& input, int64_t groups,
                      const MaybeTensor& weight, const MaybeTensor& bias, double eps, bool cudnn) {
  const NormOperands norm(input, weight, bias);
  return at::_ops::group_norm::redispatch(after_region_key(keys), norm.input, groups, norm.weight,
                                          norm.bias, eps, cudnn);
}

bool is_floating(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().is_floating_point();
}

/// The widest floating dtype of an operator's operands, including lists.
at::ScalarType widest_of(c10::ArrayRef<c10::IValue> arguments) {
  at::ScalarType widest = at::kBFloat16;
  bool any = false;
  const auto see = [&](const c10::IValue& value) {
    if (is_floating(value)) {
      const at::ScalarType dtype = value.toTensor().scalar_type();
      widest = any ? c10::promoteTypes(widest, dtype) : dtype;
      any = true;
    }
  };
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) {
        see(tensor);
      }
    } else {
      see(argument);
    }
  }
  return widest;
}

void cast(c10::IValue& value, at::ScalarType dtype) {
  if (is_floating(value)) {
    value = value.toTensor().to(dtype);
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> tensors = value.toTensorVector();
    for (at::Tensor& tensor : tensors) {
      tensor = tensor.defined() && tensor.is_floating_point() ? tensor.to(dtype) : tensor;
    }
    value = std::move(tensors);
  }
}

/// Converts the operands of an operator that refuses several floating dtypes: to the dtype of the
/// tensor that it writes, else to the widest.
void with_one_dtype(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t begin = stack->size() - arguments.size();
  const c10::AliasInfo* alias = arguments[0].alias_info();
  const bool in_place = alias != nullptr && alias->isWrite();
  const at::ScalarType dtype = in_place
                                   ? (*stack)[begin].toTensor().scalar_type()
                                   : widest_of(c10::ArrayRef<c10::IValue>(*stack).slice(begin));
  for (size_t i = begin + (in_place ? 1 : 0); i < stack->size() && at::isFloatingType(dtype); ++i) {
    cast((*stack)[i], dtype);
  }
  op.redispatchBoxed(after_region_key(keys), stack);
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
  // Operators that compare the dtypes of their operands before a kernel runs.
  for (const char* name : {"dot",
                           "vdot",
                           "inner",
                           "tensordot",
                           "bilinear",
                           "_trilinear",
                           "cross",
                           "linalg_cross",
                           "complex",
                           "lerp.Scalar",
                           "lerp.Tensor",
                           "lerp_.Scalar",
                           "lerp_.Tensor",
                           "heaviside",
                           "isclose",
                           "allclose",
                           "meshgrid",
                           "meshgrid.indexing",
                           "cartesian_prod",
                           "embedding_bag",
                           "embedding_bag.padding_idx",
                           "grid_sampler",
                           "index_put",
                           "index_put_",
                           "_index_put_impl_",
                           "_unsafe_index_put",
                           "index_copy",
                           "index_copy_",
                           "index_add",
                           "index_add_",
                           "index_reduce",
                           "index_reduce_",
                           "scatter.src",
                           "scatter_.src",
                           "scatter.reduce",
                           "scatter_.reduce",
                           "scatter_add",
                           "scatter_add_",
                           "scatter_reduce.two",
                           "scatter_reduce_.two",
                           "masked_scatter",
                           "masked_scatter_",
                           "put",
                           "put_",
                           "mv",
                           "addmv",
                           "addr",
                           "linalg_multi_dot",
                           "_weight_norm",
                           "addmm_",
                           "addmv_",
                           "addbmm_",
                           "baddbmm_",
                           "linalg_solve_ex",
                           "linalg_solve_triangular",
                           "linalg_lu_solve",
                           "linalg_ldl_solve"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&with_one_dtype>());
  }
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
