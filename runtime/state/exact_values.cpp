#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <lockstep/runtime/state/exact_values.h>

namespace lockstep::detail {

void ExactValues::convert(const std::vector<ModelTensor>& tensors, const Precision& precision) {
  for (const ModelTensor& entry : tensors) {
    const c10::ScalarType wanted = precision.storage_dtype(entry);
    lower(entry.tensor, wanted);
    converted_.push_back({entry.tensor, wanted});
  }
}

void ExactValues::convert_again() {
  for (const Converted& entry : converted_) {
    lower(entry.tensor, entry.dtype);
  }
}

void ExactValues::lower(const at::Tensor& tensor, c10::ScalarType dtype) {
  if (tensor.scalar_type() == dtype) {
    return;
  }
  const c10::AutoGradMode no_grad(false);
  const at::Tensor given = tensor.detach();
  tensor.set_data(given.to(dtype));
  if (at::isReducedFloatingType(dtype)) {
    keep(tensor, given.to(at::kCPU, at::kFloat));
  }
}

void ExactValues::keep(const at::Tensor& tensor, const at::Tensor& exact) {
  if (at::equal(tensor.detach().to(at::kCPU, at::kFloat), exact)) {
    exact_.erase(tensor.unsafeGetTensorImpl());
  } else {
    exact_[tensor.unsafeGetTensorImpl()] = exact;
  }
}

at::Tensor ExactValues::stored(const at::Tensor& tensor) const {
  const auto found = exact_.find(tensor.unsafeGetTensorImpl());
  const at::Tensor held = tensor.detach();
  if (found == exact_.end() || found->second.sizes() != held.sizes() ||
      !at::equal(found->second.to(held.scalar_type()), held.cpu())) {
    return held;
  }
  return found->second;
}

at::Tensor ExactValues::room(const at::Tensor& tensor) const {
  if (!at::isReducedFloatingType(tensor.scalar_type())) {
    return tensor.detach();
  }
  return stored(tensor).to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

void ExactValues::take(const at::Tensor& tensor, const at::Tensor& written) {
  if (at::isReducedFloatingType(tensor.scalar_type())) {
    tensor.detach().copy_(written);
    keep(tensor, written);
  }
}

}  // namespace lockstep::detail
