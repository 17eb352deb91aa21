#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::amp {

// The passes of the fused layers, each for host memory and for CUDA. Tensors are contiguous and on
// one device: rows in fp32, fp16 or bf16 with the normalised (or class) dimension last; weights and
// biases in fp32 or undefined; results allocated by the caller. CUDA passes run on the current
// stream, the host never waits, and a build without CUDA throws Error. Gradients of weights have
// the same bits in every run. Any thread.

/// Whether this build has passes for the tensor's device.
bool has_passes(const at::Tensor& x);

/// LayerNorm, or RMSNorm if not centred.
struct NormPass {
  at::Tensor x;
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor norms;  // fp32 (rows, 2): what backward needs of each row
  bool centred = true;
  double eps = 0.0;
};
void norm_on_cpu(const NormPass& pass, const at::Tensor& y);
void norm_on_cuda(const NormPass& pass, const at::Tensor& y);
/// Writes dx; returns the gradients of weight and bias, fp32 (2, size).
at::Tensor norm_backward_on_cpu(const NormPass& pass, const at::Tensor& dx, const at::Tensor& dy);
at::Tensor norm_backward_on_cuda(const NormPass& pass, const at::Tensor& dx, const at::Tensor& dy);

/// y = gelu(x + bias).
void bias_gelu_on_cpu(const at::Tensor& y, const at::Tensor& x, const at::Tensor& bias);
void bias_gelu_on_cuda(const at::Tensor& y, const at::Tensor& x, const at::Tensor& bias);
/// Writes dx; returns the gradient of the bias.
at::Tensor bias_gelu_backward_on_cpu(const at::Tensor& dx, const at::Tensor& dy,
                                     const at::Tensor& x, const at::Tensor& bias);
at::Tensor bias_gelu_backward_on_cuda(const at::Tensor& dx, const at::Tensor& dy,
                                      const at::Tensor& x, const at::Tensor& bias);

struct CrossEntropyPass {
  at::Tensor logits;    // (rows, classes)
  at::Tensor targets;   // int64
  at::Tensor log_sums;  // fp32 (rows): written by forward, read by backward
  at::Tensor counted;   // fp64, 0-dimensional: likewise: the number of rows that count
  double smoothing = 0.0;
  int64_t ignore_index = -100;
};
/// The mean loss, fp32. A target that is no class makes it NaN on a device.
at::Tensor cross_entropy_on_cpu(const CrossEntropyPass& pass);
at::Tensor cross_entropy_on_cuda(const CrossEntropyPass& pass);
/// `slope`: the gradient of the mean loss, fp32.
void cross_entropy_backward_on_cpu(const CrossEntropyPass& pass, const at::Tensor& gradient,
                                   const at::Tensor& slope);
void cross_entropy_backward_on_cuda(const CrossEntropyPass& pass, const at::Tensor& gradient,
                                    const at::Tensor& slope);

}  // namespace lockstep::amp
