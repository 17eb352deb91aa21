#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>

#include "test_device.h"

namespace lockstep::testing {

/// One block of a causal language model: 11 tokens, width 8, one head. Tied embedding.
struct TinyTransformer : torch::nn::Module {
  static constexpr int64_t tokens = 11;
  static constexpr int64_t width = 8;

  TinyTransformer()
      : embedding(register_module("embedding", torch::nn::Embedding(tokens, width))),
        attention_norm(register_module("attention_norm", norm())),
        qkv(register_module("qkv", torch::nn::Linear(without_bias(3 * width)))),
        projection(register_module("projection", torch::nn::Linear(width, width))),
        mlp_norm(register_module("mlp_norm", norm())),
        widen(register_module("widen", torch::nn::Linear(width, 2 * width))),
        narrow(register_module("narrow", torch::nn::Linear(2 * width, width))) {
    register_parameter("tied_head", embedding->weight);
    to(device());
  }

  /// The bias of keys has no gradient but rounding errors, which Adam would blow up.
  static torch::nn::LinearOptions without_bias(int64_t outputs) {
    return torch::nn::LinearOptions(width, outputs).bias(false);
  }

  static torch::nn::LayerNorm norm() {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
  }

  at::Tensor attend(const at::Tensor& x) {
    const auto parts = qkv->forward(x).chunk(3, -1);
    at::Tensor scores = parts[0].matmul(parts[1].transpose(1, 2)) / std::sqrt(double{width});
    const at::Tensor later = at::ones({x.size(1), x.size(1)}, x.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(later, -1e4);
    return projection->forward(at::softmax(scores, -1).to(parts[2].scalar_type()).matmul(parts[2]));
  }

  /// (rows, length) token numbers -> (rows, length, tokens) logits.
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = embedding->forward(ids);
    x = x + attend(attention_norm->forward(x));
    x = x + narrow->forward(at::gelu(widen->forward(mlp_norm->forward(x))));
    return at::linear(x, embedding->weight);
  }

  /// Mean cross-entropy of the next tokens.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& next) {
    return at::cross_entropy_loss(forward(ids).reshape({-1, tokens}), next.reshape({-1}));
  }

  torch::nn::Embedding embedding;
  torch::nn::LayerNorm attention_norm;
  torch::nn::Linear qkv;
  torch::nn::Linear projection;
  torch::nn::LayerNorm mlp_norm;
  torch::nn::Linear widen;
  torch::nn::Linear narrow;
};

}  // namespace lockstep::testing
