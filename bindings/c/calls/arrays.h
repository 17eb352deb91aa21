#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/bindings/c/lockstep.h>

#include <string>
#include <vector>

namespace lockstep::c {

/// A tensor on the memory of the array, without a copy. `what` names the array in errors. Throws
/// Error (exit code data) for an unknown dtype, a number of dimensions or shape out of range, a
/// negative stride, a size that overflows, or no memory.
at::Tensor borrowed(const lockstep_array& array, const std::string& what);
/// The tensors of `count` arrays.
std::vector<at::Tensor> borrowed(const lockstep_array* arrays, int count, const std::string& what);

/// Copies `tensor` into the memory of the array. Throws Error (exit code data) if the shapes
/// differ, or if the tensor is floating-point and the array has integers.
void write(const at::Tensor& tensor, const lockstep_array& array, const std::string& what);
/// The same for `count` arrays, which must be as many as the tensors.
void write(const std::vector<at::Tensor>& tensors, const lockstep_array* arrays, int count);

}  // namespace lockstep::c
