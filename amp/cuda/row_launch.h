#pragma once

#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/cuda/row_work.h>

namespace lockstep::amp::cuda {

/// Launch the kernels of the fused layers, as in launch.h. `parts`: memory for row_parts() rows of
/// sums for the weight, then as many for the bias.
Problem launch_norm(const NormWork& work, const Rows& y, void* stream);
/// `sums`: the gradients of the weight, then of the bias. `parts` and `sums` may be null.
Problem launch_norm_backward(const NormWork& work, const Rows& dx, const Rows& dy, float* parts,
                             float* sums, void* stream);

Problem launch_bias_gelu(const BiasGeluWork& work, const Rows& y, void* stream);
Problem launch_bias_gelu_backward(const BiasGeluWork& work, const Rows& dx, const Rows& dy,
                                  float* parts, float* bias_sum, void* stream);

/// Writes the mean loss and the number of rows that count. `losses`: memory for one number a row.
Problem launch_cross_entropy(const CrossEntropyWork& work, double* losses, float* loss,
                             double* counted, void* stream);
/// `slope`: the gradient of the mean loss.
Problem launch_cross_entropy_backward(const CrossEntropyWork& work, const Rows& gradient,
                                      const float* slope, const double* counted, void* stream);

}  // namespace lockstep::amp::cuda
