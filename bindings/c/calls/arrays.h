#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/bindings/c/lockstep.h>

#include <string>
#include <vector>

namespace lockstep::c {

/// A tensor on the memory of the array, without a copy; a copy if a stride is negative. `what`
/// names the array in errors. Throws Error (exit code data) for an unknown dtype, a number of
/// dimensions or shape out of range, a size that overflows, or no memory.
at::Tensor borrowed(const lockstep_array& array, const std::string& what);
/// The tensors of `count` arrays.
std::vector<at::Tensor> borrowed(const lockstep_array* arrays, int count, const std::string& what);

/// The same for an array that is used after the call. Throws Error for a negative stride.
at::Tensor kept(const lockstep_array& array, const std::string& what);
std::vector<at::Tensor> kept(const lockstep_array* arrays, int count, const std::string& what);

/// "input: Float [6, 3], the target: Double [6, 1]", for errors. `target` may be undefined.
std::string described(const std::vector<at::Tensor>& inputs, const at::Tensor& target);

/// Copies `tensor` into the memory of the array. Throws Error (exit code data) if the shapes
/// differ, or if the tensor is floating-point and the array has integers.
void write(const at::Tensor& tensor, const lockstep_array& array, const std::string& what);
/// The same for `count` arrays, which must be as many as the tensors.
void write(const std::vector<at::Tensor>& tensors, const lockstep_array* arrays, int count);

}  // namespace lockstep::c
