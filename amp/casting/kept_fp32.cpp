#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <lockstep/amp/impl/kept_fp32.h>
#include <lockstep/collectives/exceptions.h>
#include <torch/library.h>

namespace lockstep::amp {

namespace {

// A key above those of autocast on CPU and CUDA. lockstep does not use the device of this key.
constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;

void widen(c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined() &&
        (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16)) {
      value = tensor.to(at::kFloat);
    }
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> wide;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      c10::IValue element(tensor);
      widen(element);
      wide.push_back(element.toTensor());
    }
    value = std::move(wide);
  }
}

void run_in_fp32(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const size_t arguments = op.schema().arguments().size();
  for (size_t i = stack->size() - arguments; i < stack->size(); ++i) {
    widen((*stack)[i]);
  }
  op.callBoxed(stack);
}

/// For an operator that has no fp32 kernel.
void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* /*stack*/) {
  throw Error(c10::str(op.schema().name(),
                       " computes in 16 bits only, and one of its operands is kept in fp32 "
                       "(Precision::keep_fp32): call scaled_dot_product_attention instead"));
}

}  // namespace

void compute_in_fp32(const at::Tensor& parameter) {
  const at::Tensor data = parameter.detach();
  at::Tensor marked = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(data.storage()), data.key_set().add(kKey), data.dtype());
  marked.unsafeGetTensorImpl()->set_sizes_and_strides(data.sizes(), data.strides(),
                                                      data.storage_offset());
  parameter.set_data(marked);
}

bool computes_in_fp32(const at::Tensor& parameter) {
  return parameter.key_set().has(kKey);
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

// The low-precision lists of autocast on CPU and CUDA, and the layers that run these operators; all
// need operands of one dtype.
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, library) {
  for (const char* name : {"linear",
                           "matmul",
                           "mm",
                           "bmm",
                           "mv",
                           "addmm",
                           "_addmm_activation",
                           "addmv",
                           "addr",
                           "baddbmm",
                           "addbmm",
                           "einsum",
                           "chain_matmul",
                           "linalg_multi_dot",
                           "linalg_vecdot",
                           "tensordot",
                           "inner",
                           "bilinear",
                           "prelu",
                           "conv1d",
                           "conv1d.padding",
                           "conv2d",
                           "conv2d.padding",
                           "conv3d",
                           "conv3d.padding",
                           "conv_tbc",
                           "conv_transpose1d",
                           "conv_transpose2d.input",
                           "conv_transpose3d.input",
                           "convolution",
                           "_convolution",
                           "_convolution.deprecated",
                           "_convolution_mode",
                           "cudnn_convolution",
                           "cudnn_convolution_transpose",
                           "lstm.input",
                           "lstm.data",
                           "gru.input",
                           "gru.data",
                           "rnn_tanh.input",
                           "rnn_tanh.data",
                           "rnn_relu.input",
                           "rnn_relu.data",
                           "lstm_cell",
                           "gru_cell",
                           "rnn_tanh_cell",
                           "rnn_relu_cell",
                           "_thnn_fused_lstm_cell",
                           "_thnn_fused_gru_cell",
                           "_cudnn_rnn",
                           "mkldnn_rnn_layer",
                           "scaled_dot_product_attention",
                           "_native_multi_head_attention"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_in_fp32>());
  }
  library.impl("_scaled_dot_product_flash_attention",
               torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

}  // namespace lockstep::amp
