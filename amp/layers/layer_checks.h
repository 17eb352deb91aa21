#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lockstep::amp {

/// Whether the layers accept this dtype: fp32, fp16 or bf16.
bool is_layer_dtype(at::ScalarType dtype);

/// Dtype, sizes and device of a tensor for an error message, or "no tensor".
std::string described(const at::Tensor& tensor);

/// Throws Error with the layer's name if the memory of the tensor does not hold its values.
void check_plain(const char* layer, const at::Tensor& tensor);

/// `tensor`, or a contiguous copy with lazy conjugation and negation applied.
at::Tensor in_memory(const at::Tensor& tensor);

/// Checks the arguments of a cross-entropy layer: `targets` is a contiguous int64 vector of `rows`
/// elements on the device of `beside`, on the CPU each a class or `ignore_index`; `smoothing` is in
/// [0, 1). Throws Error with the layer, the argument and, for a wrong class, the row.
void check_targets(const char* layer, const at::Tensor& targets, const at::Tensor& beside,
                   int64_t rows, int64_t classes, double smoothing, int64_t ignore_index);

}  // namespace lockstep::amp
