#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/bindings/c/lockstep.h>

#include <string>
#include <vector>

namespace lockstep::c {

/// The memory of the array as a tensor on the host, without a copy. `what` names the array in
/// errors. Throws Error (exit code data) for an array that no tensor can be: an unknown dtype, a
/// rank or shape out of range, a negative stride, a size that overflows, no memory.
at::Tensor borrowed(const lockstep_array& array, const std::string& what);
/// The tensors of `count` arrays.
std::vector<at::Tensor> borrowed(const lockstep_array* arrays, int count, const std::string& what);

/// Copies `tensor` into the memory of the array. Throws Error (exit code data) for another shape,
/// and for a floating-point tensor and an array of integers.
void write(const at::Tensor& tensor, const lockstep_array& array, const std::string& what);
/// The same for as many tensors as arrays.
void write(const std::vector<at::Tensor>& tensors, const lockstep_array* arrays, int count);

}  // namespace lockstep::c
