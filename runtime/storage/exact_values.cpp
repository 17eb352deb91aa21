#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <lockstep/runtime/storage/impl/exact_values.h>

namespace lockstep::detail {

void ExactValues::convert_frozen(const std::vector<ModelTensor>& frozen,
                                 const Precision& precision) {
  for (const ModelTensor& entry : frozen) {
    convert(entry.tensor, precision.storage_dtype(entry));
  }
}

void ExactValues::convert_buffers(const std::vector<ModelTensor>& buffers,
                                  const Precision& precision) {
  for (const ModelTensor& entry : buffers) {
    convert(entry.tensor, precision.buffer_dtype(entry));
  }
}

void ExactValues::convert(const at::Tensor& tensor, c10::ScalarType dtype) {
  lower(tensor, dtype);
  converted_.push_back({tensor, dtype});
  ++writes_;
}

void ExactValues::add_frozen(const at::Tensor& weight, const at::Tensor& master) {
  converted_.push_back({weight, weight.scalar_type()});
  lowered_.insert(weight.unsafeGetTensorImpl());
  take(weight, master);
}

void ExactValues::convert_again() {
  ++writes_;
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
    lowered_.insert(tensor.unsafeGetTensorImpl());
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
  return found == exact_.end() || is_outdated(tensor) ? tensor.detach() : found->second;
}

bool ExactValues::is_outdated(const at::Tensor& tensor) const {
  const auto found = exact_.find(tensor.unsafeGetTensorImpl());
  if (found == exact_.end()) {
    return false;
  }
  const at::Tensor held = tensor.detach().cpu();
  return found->second.sizes() != held.sizes() ||
         !at::equal(found->second.to(held.scalar_type()).to(at::kFloat), held.to(at::kFloat));
}

bool ExactValues::is_lowered(const at::Tensor& tensor) const {
  return at::isReducedFloatingType(tensor.scalar_type()) &&
         lowered_.count(tensor.unsafeGetTensorImpl()) != 0;
}

at::Tensor ExactValues::room(const at::Tensor& tensor) const {
  if (!at::isReducedFloatingType(tensor.scalar_type())) {
    return tensor.detach();
  }
  return stored(tensor).to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

void ExactValues::take(const at::Tensor& tensor, const at::Tensor& written) {
  if (at::isReducedFloatingType(tensor.scalar_type())) {
    ++writes_;
    tensor.detach().copy_(written);
    keep(tensor, written);
  }
}

}  // namespace lockstep::detail
