#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lockstep::amp {

/// Whether the layers compute with this dtype: fp32, fp16 or bf16.
bool is_layer_dtype(at::ScalarType dtype);

/// Dtype, sizes and device of a tensor for an error message, or "no tensor".
std::string described(const at::Tensor& tensor);

/// Throws Error that names the layer for a tensor whose memory does not hold its values.
void check_plain(const char* layer, const at::Tensor& tensor);

/// `tensor`, or a copy that is contiguous and has LibTorch's lazy signs applied.
at::Tensor in_memory(const at::Tensor& tensor);

/// What every cross-entropy layer demands of its targets: a contiguous int64 vector with one
/// element for each of `rows`, on the device of `beside`; on the CPU each one a class or
/// `ignore_index`. And a `smoothing` in [0, 1). Throws Error that names the layer, the argument
/// and, for a wrong class, the row.
void check_targets(const char* layer, const at::Tensor& targets, const at::Tensor& beside,
                   int64_t rows, int64_t classes, double smoothing, int64_t ignore_index);

}  // namespace lockstep::amp
