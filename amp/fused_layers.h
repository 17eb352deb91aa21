#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// Layers in one pass over memory with fp32 arithmetic whatever the input's dtype, also under
/// amp::Autocast; results have the input's dtype, losses are fp32. Inputs: fp32, fp16 or bf16 with
/// the normalised (or class) dimension last; weights and biases fp32. On the CPU they run in
/// lockstep's kernels, whose bits do not depend on threads or instruction set; on CUDA in its
/// kernels there, which give the same bits at every run; elsewhere, and on CUDA in a build without
/// kernels, they are composed of LibTorch's operators. Differentiable once.
/// Ranks: local. Threads: any. Errors: Error naming the argument whose dtype or size is wrong.

/// LayerNorm (Ba, Kiros and Hinton, 2016) over the last dimension. weight, bias: may be undefined.
at::Tensor fused_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            double eps = 1e-5);
/// RMSNorm (Zhang and Sennrich, 2019), T5's LayerNorm: x / sqrt(mean(x^2) + eps) * weight.
at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps = 1e-6);
/// gelu(x + bias), GELU in its tanh form, as torch's gelu with approximate="tanh".
at::Tensor fused_bias_gelu(const at::Tensor& x, const at::Tensor& bias);
/// Mean cross-entropy of (rows, classes) logits and int64 targets, with label smoothing as
/// torch.nn.CrossEntropyLoss; rows whose target is `ignore_index` do not count. Keeps one number a
/// row for backward instead of a softmax. fp32, 0-dimensional. NaN if no row counts. A
/// target that is no class is an Error on the CPU and makes the loss NaN on CUDA, where the host
/// does not look at it.
at::Tensor fused_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                               double label_smoothing = 0.0, int64_t ignore_index = -100);

/// fused_layer_norm with weight and bias. Counts as a norm for Precision. Stands in
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

/// fused_rms_norm with weight. Counts as a norm for Precision.
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
