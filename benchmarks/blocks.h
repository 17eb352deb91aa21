#pragma once

#include <lockstep/amp/fused_layers.h>
#include <torch/torch.h>

namespace lockstep::benchmarks {

/// A transformer's layer: attention and two linear maps, each normalised before it (GPT-2) or after
/// it (BERT) and added to what goes in.
struct TransformerLayer : torch::nn::Module {
  struct Options {
    int64_t units = 0, heads = 0;
    bool norm_first = false;
    bool causal = false;
    double dropout = 0.0;
    bool fused = false;  // lockstep's fused_layer_norm and fused_bias_gelu
  };

  explicit TransformerLayer(const Options& options)
      : options(options),
        norm1(register_module("norm1", norm())),
        qkv(register_module("qkv", torch::nn::Linear(options.units, 3 * options.units))),
        projection(register_module("projection", torch::nn::Linear(options.units, options.units))),
        norm2(register_module("norm2", norm())),
        up(register_module("up", torch::nn::Linear(options.units, 4 * options.units))),
        down(register_module("down", torch::nn::Linear(4 * options.units, options.units))) {}

  at::Tensor forward(const at::Tensor& x) {
    if (options.norm_first) {
      const at::Tensor y = x + dropped(attention(normed(norm1, x)));
      return y + dropped(down(widened(normed(norm2, y))));
    }
    const at::Tensor y = normed(norm1, x + dropped(attention(x)));
    return normed(norm2, y + dropped(down(widened(y))));
  }

  Options options;
  torch::nn::LayerNorm norm1;
  torch::nn::Linear qkv, projection;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear up, down;

 private:
  torch::nn::LayerNorm norm() const {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.units}));
  }
  at::Tensor normed(torch::nn::LayerNorm& norm, const at::Tensor& x) const {
    return options.fused ? fused_layer_norm(x, norm->weight, norm->bias) : norm(x);
  }
  at::Tensor widened(const at::Tensor& x) {
    return options.fused ? fused_bias_gelu(at::linear(x, up->weight), up->bias) : at::gelu(up(x));
  }
  at::Tensor dropped(const at::Tensor& x) const { return at::dropout(x, options.dropout, true); }
  at::Tensor attention(const at::Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1), units = x.size(2);
    const auto parts = qkv(x)
                           .view({batch, length, 3, options.heads, units / options.heads})
                           .permute({2, 0, 3, 1, 4})
                           .unbind(0);
    return projection(
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, options.causal)
            .transpose(1, 2)
            .reshape({batch, length, units}));
  }
};

/// A convolution without bias and its batch norm.
inline torch::nn::Sequential normalised(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return torch::nn::Sequential(
      torch::nn::Conv2d(
          torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false)),
      torch::nn::BatchNorm2d(out));
}

/// ResNet-18's block: two convolutions of 3 x 3.
struct BasicBlock : torch::nn::Module {
  static constexpr int64_t expansion = 1;

  BasicBlock(int64_t in, int64_t width, int64_t stride)
      : first(register_module("first", normalised(in, width, 3, stride))),
        second(register_module("second", normalised(width, width, 3, 1))) {
    if (stride != 1 || in != width) {
      shortcut = register_module("shortcut", normalised(in, width, 1, stride));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = second->forward(first->forward(x).relu());
    return at::relu(y + (shortcut ? shortcut->forward(x) : x));
  }
  torch::nn::Sequential first, second, shortcut{nullptr};
};

/// ResNet-50's block: 1 x 1, 3 x 3, 1 x 1.
struct Bottleneck : torch::nn::Module {
  static constexpr int64_t expansion = 4;

  Bottleneck(int64_t in, int64_t width, int64_t stride)
      : first(register_module("first", normalised(in, width, 1, 1))),
        second(register_module("second", normalised(width, width, 3, stride))),
        third(register_module("third", normalised(width, expansion * width, 1, 1))) {
    if (stride != 1 || in != expansion * width) {
      shortcut = register_module("shortcut", normalised(in, expansion * width, 1, stride));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = second->forward(first->forward(x).relu()).relu();
    return at::relu(third->forward(y) + (shortcut ? shortcut->forward(x) : x));
  }
  torch::nn::Sequential first, second, third, shortcut{nullptr};
};

}  // namespace lockstep::benchmarks
