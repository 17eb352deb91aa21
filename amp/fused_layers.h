#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// Layers that make one pass over memory, with fp32 arithmetic for every input dtype, also under
/// amp::Autocast. Results have the dtype of the input; losses are fp32. Inputs: fp32, fp16 or bf16,
/// with the normalised (or class) dimension last; weights and biases fp32. Differentiable once.
/// On the CPU they run in lockstep's own kernels, whose results have the same bits for every number
/// of threads and every instruction set. On CUDA they run in lockstep's CUDA kernels, which give
/// the same bits in every run. On other devices, and on CUDA in a build without kernels, they are
/// composed of LibTorch's operators.
/// Ranks: local. Threads: any. Errors: Error that names the argument whose dtype or size is wrong.

/// LayerNorm (Ba, Kiros and Hinton, 2016) over the last dimension. `weight` and `bias` may be
/// undefined.
at::Tensor fused_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            double eps = 1e-5);
/// RMSNorm (Zhang and Sennrich, 2019), the LayerNorm of T5: x / sqrt(mean(x^2) + eps) * weight.
at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps = 1e-6);
/// gelu(x + bias) with the tanh formula, as torch's gelu with approximate="tanh".
at::Tensor fused_bias_gelu(const at::Tensor& x, const at::Tensor& bias);
/// Mean cross-entropy of (rows, classes) logits and int64 targets, with label smoothing as in
/// torch.nn.CrossEntropyLoss. Rows whose target is `ignore_index` do not count. Keeps one number
/// per row for backward instead of a softmax. The result is fp32, 0-dimensional; NaN if no row
/// counts. A target that is not a class throws Error on the CPU. On CUDA it makes the loss NaN,
/// because the host does not read the targets there.
at::Tensor fused_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                               double label_smoothing = 0.0, int64_t ignore_index = -100);

/// Mean cross-entropy of the logits x weight^T + bias: a linear layer and fused_cross_entropy in
/// one, for heads with many classes. The classes are computed in blocks of 2048, and each block is
/// read for the loss while the cache still holds it; backward makes the gradients of a block, uses
/// them in its matrix products and forgets them. So only the logits themselves are kept, in the
/// dtype of the products, where the two layers keep three such matrices. Liger Kernel (Hsu and
/// others, 2024, arXiv 2410.10989) fuses the same layers on GPUs.
/// x: (rows, width); weight: (classes, width), as of torch::nn::Linear; bias: (classes), may be
/// undefined. All have one dtype; under amp::Autocast each may have any, and the products are
/// computed in the dtype of the region, or in fp32 if Precision keeps the weight there. Targets,
/// label smoothing, `ignore_index` and the result are those of fused_cross_entropy. The products
/// are LibTorch's, so their bits depend on its matrix library.
at::Tensor fused_linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                      const at::Tensor& bias, const at::Tensor& targets,
                                      double label_smoothing = 0.0, int64_t ignore_index = -100);

/// fused_layer_norm with weight and bias, as a module. Counts as a norm for Precision. Works in
/// torch::nn::Sequential, as FusedRMSNorm does.
class FusedLayerNormImpl : public torch::nn::Module {
 public:
  explicit FusedLayerNormImpl(int64_t size, double eps = 1e-5);
  at::Tensor forward(const at::Tensor& x) { return fused_layer_norm(x, weight, bias, eps_); }
  at::Tensor weight, bias;

 private:
  double eps_;
};
TORCH_MODULE(FusedLayerNorm);

/// fused_rms_norm with weight, as a module. Counts as a norm for Precision.
class FusedRMSNormImpl : public torch::nn::Module {
 public:
  explicit FusedRMSNormImpl(int64_t size, double eps = 1e-6);
  at::Tensor forward(const at::Tensor& x) { return fused_rms_norm(x, weight, eps_); }
  at::Tensor weight;

 private:
  double eps_;
};
TORCH_MODULE(FusedRMSNorm);

}  // namespace lockstep
