#pragma once

#include <lockstep/amp/cuda/row_work.h>

namespace lockstep::amp::cuda {

/// Norms, and bias with GELU, for rows of whole packs: each thread reads one to three packs of a
/// row once, in accesses of 16 bytes. The functions of row_launch.h choose these kernels.

/// The longest row, in elements, that one block can process.
constexpr int64_t kWideSize = 8192;

inline bool aligned(const float* parameter) {
  return reinterpret_cast<uintptr_t>(parameter) % 16 == 0;  // or null
}

template <typename Work>
bool in_packs(const Work& work, const Rows& a, const Rows& b) {
  return work.x.in_packs() && a.in_packs() && b.in_packs() && aligned(work.bias);
}

inline bool in_wide_rows(const NormWork& work, const Rows& a, const Rows& b) {
  return in_packs(work, a, b) && aligned(work.weight) && work.x.size <= kWideSize;
}

void start_wide_norm(const NormWork& work, const Rows& y, void* stream);
/// `parts`: null if no gradients of weight and bias are wanted; else row_parts() rows of sums for
/// the weight, then as many for the bias.
void start_wide_norm_backward(const NormWork& work, const Rows& dx, const Rows& dy, float* parts,
                              void* stream);
void start_wide_bias_gelu(const BiasGeluWork& work, const Rows& y, void* stream);
void start_wide_bias_gelu_backward(const BiasGeluWork& work, const Rows& dx, const Rows& dy,
                                   float* parts, void* stream);

}  // namespace lockstep::amp::cuda
