#pragma once

#include <ATen/ATen.h>

namespace lockstep::testing {

/// Where this program's tests run: its main says. The same objects make a program for the CPU and,
/// by lockstep_add_gpu_test, others for a GPU.
c10::Device device();

inline at::TensorOptions on_device(at::ScalarType dtype = at::kFloat) {
  return at::TensorOptions().dtype(dtype).device(device());
}

/// at::ones and its like, there.
inline at::Tensor ones(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return at::ones(sizes, on_device(dtype));
}
inline at::Tensor zeros(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return at::zeros(sizes, on_device(dtype));
}
inline at::Tensor full(at::IntArrayRef sizes, const at::Scalar& value,
                       at::ScalarType dtype = at::kFloat) {
  return at::full(sizes, value, on_device(dtype));
}
inline at::Tensor randn(at::IntArrayRef sizes) {
  return at::randn(sizes, on_device());
}
inline at::Tensor tensor(at::ArrayRef<float> values) {
  return at::tensor(values).to(device());
}

}  // namespace lockstep::testing
