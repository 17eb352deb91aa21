#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// Stacks the samples along a new first dimension. Throws Error if shapes or dtypes differ.
at::Tensor stack_samples(const std::vector<at::Tensor>& samples);
/// One-dimensional tensors, int64 and float32.
at::Tensor stack_samples(const std::vector<int64_t>& samples);
at::Tensor stack_samples(const std::vector<float>& samples);

}  // namespace lockstep
