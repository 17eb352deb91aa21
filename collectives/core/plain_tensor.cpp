#include <ATen/ops/zeros.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/plain_tensor.h>

namespace lockstep::detail {

std::string why_not_plain(const at::Tensor& tensor) {
  if (tensor.is_meta()) {
    return "is on the meta device and has no values: give it memory, then its values";
  }
  if (tensor.is_quantized()) {
    return "is quantised: use dequantize(), or its integers (int_repr()) and its scale as two "
           "tensors";
  }
  if (tensor.is_nested()) {
    return "is a nested tensor: use its parts as tensors of their own";
  }
  if (tensor.layout() != at::kStrided) {
    return c10::str("has the layout ", tensor.layout(),
                    ", a sparse or opaque one: use to_dense(), or its dense parts, such as indices "
                    "and values, as tensors of their own");
  }
  return {};
}

bool is_lazy(const at::Tensor& tensor) {
  return tensor.is_conj() || tensor.is_neg() || tensor._is_zerotensor();
}

at::Tensor applied(const at::Tensor& tensor) {
  return tensor._is_zerotensor() ? at::zeros(tensor.sizes(), tensor.options())
                                 : tensor.resolve_conj().resolve_neg();
}

at::Tensor plain(const at::Tensor& tensor, const std::string& what) {
  const std::string why = why_not_plain(tensor);
  LOCKSTEP_CHECK(why.empty(), what, " ", why);
  return applied(tensor);
}

}  // namespace lockstep::detail
