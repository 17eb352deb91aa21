#pragma once

#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/cuda/row_work.h>

namespace lockstep::amp::cuda {

/// The kernels of the fused layers, on the current device: as in launch.h. `parts` is memory for
/// row_parts() rows of sums, one after another for weight and bias.
Problem launch_norm(const NormWork& work, const Rows& y, void* stream);
/// `sums`: the gradients of weight and bias, one after another. `parts` and `sums` may be null.
Problem launch_norm_backward(const NormWork& work, const Rows& dx, const Rows& dy, float* parts,
                             float* sums, void* stream);

Problem launch_bias_gelu(const BiasGeluWork& work, const Rows& y, void* stream);
Problem launch_bias_gelu_backward(const BiasGeluWork& work, const Rows& dx, const Rows& dy,
                                  float* parts, float* bias_sum, void* stream);

/// The mean loss and the number of rows that count; `losses` is memory for one number a row.
Problem launch_cross_entropy(const CrossEntropyWork& work, double* losses, float* loss,
                             double* counted, void* stream);
/// `slope`: the gradient of the mean loss.
Problem launch_cross_entropy_backward(const CrossEntropyWork& work, const Rows& gradient,
                                      const float* slope, const double* counted, void* stream);

}  // namespace lockstep::amp::cuda
