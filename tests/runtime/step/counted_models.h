#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {

// The parameters and buffers of three models, in their usual order, at any width. What a step
// issues beyond forward and backward depends on these tensors alone. A width of 1 / `shrink` of the
// real one keeps the number of layers and of tensors.

/// A model whose large parameters are made on a given device: on the meta device they have sizes
/// and no memory.
struct CountedModel : torch::nn::Module {
  explicit CountedModel(c10::Device device) : device(device) {}

  at::Tensor parameter(const std::string& name, at::IntArrayRef sizes) {
    at::Tensor made = at::empty(sizes, at::TensorOptions().device(device));
    if (!device.is_meta()) {
      made.normal_(0.0, 0.02);
    }
    return register_parameter(name, std::move(made));
  }
  torch::nn::LayerNorm layer_norm(const std::string& name, int64_t width) {
    return register_module(name, torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }
  /// A layer x -> x W^T + b.
  std::function<at::Tensor(const at::Tensor&)> linear(const std::string& name, int64_t in,
                                                      int64_t out) {
    const at::Tensor weight = parameter(name + "_weight", {out, in});
    const at::Tensor bias = parameter(name + "_bias", {out});
    return [weight, bias](const at::Tensor& x) { return at::linear(x, weight, bias); };
  }
  /// The loss of a batch that the model makes itself.
  virtual at::Tensor loss() = 0;

  c10::Device device;
};

using Layer = std::function<at::Tensor(const at::Tensor&)>;

/// torchvision's resnet50: 161 parameters, 53 BatchNorm layers.
struct ResNet50Shape final : CountedModel {
  ResNet50Shape(int64_t shrink, c10::Device device) : CountedModel(device) {
    const int64_t base = 64 / shrink;
    layers.push_back(convolution("stem", 3, base, 3));
    int64_t in = base;
    const int64_t blocks[] = {3, 4, 6, 3};
    for (int64_t stage = 0; stage < 4; ++stage) {
      const int64_t width = base << stage;
      for (int64_t block = 0; block < blocks[stage]; ++block) {
        const std::string name = "block" + std::to_string(stage) + "_" + std::to_string(block);
        const Layer first = convolution(name + "_1", in, width, 1);
        const Layer second = convolution(name + "_2", width, width, 3);
        const Layer third = convolution(name + "_3", width, 4 * width, 1, /*ends=*/true);
        const Layer shortcut = block > 0 ? Layer([](const at::Tensor& x) { return x; })
                                         : convolution(name + "_s", in, 4 * width, 1, true);
        layers.push_back(
            [=](const at::Tensor& x) { return at::relu(third(second(first(x))) + shortcut(x)); });
        in = 4 * width;
      }
    }
    const Layer head = linear("head", in, shrink == 1 ? 1000 : 10);
    layers.push_back([=](const at::Tensor& x) { return head(x.mean({2, 3})); });
  }

  /// A convolution and its BatchNorm.
  Layer convolution(const std::string& name, int64_t in, int64_t out, int64_t size,
                    bool ends = false) {
    const int64_t real = name == "stem" ? 7 : size;  // torchvision's stem is 7x7
    const at::Tensor weight = parameter(name + "_weight", {out, in, device.is_meta() ? real : size,
                                                           device.is_meta() ? real : size});
    torch::nn::BatchNorm2d norm = register_module(name + "_norm", torch::nn::BatchNorm2d(out));
    return [=](const at::Tensor& x) mutable {
      const at::Tensor y =
          norm->forward(at::conv2d(x, weight, {}, /*stride=*/1, /*padding=*/size / 2));
      return ends ? y : at::relu(y);
    };
  }

  at::Tensor loss() override {
    at::Tensor x = at::rand({2, 3, 4, 4}, at::TensorOptions().device(device));
    for (const Layer& layer : layers) {
      x = layer(x);
    }
    return x.to(at::kFloat).square().mean();
  }

  std::vector<Layer> layers;
};

/// A transformer of 12 layers and 12 heads.
struct TransformerShape : CountedModel {
  TransformerShape(int64_t shrink, c10::Device device)
      : CountedModel(device), width(768 / shrink) {}

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    const at::Tensor scores = q.matmul(k.transpose(1, 2)) / std::sqrt(static_cast<double>(width));
    return at::softmax(scores, -1).to(v.scalar_type()).matmul(v);
  }
  at::Tensor ids() const {
    return at::randint(8, {2, 4}, at::TensorOptions().device(device).dtype(at::kLong));
  }

  int64_t width;
};

/// Hugging Face's gpt2: 148 parameters, the output tied to the embedding.
struct Gpt2Shape final : TransformerShape {
  Gpt2Shape(int64_t shrink, c10::Device device) : TransformerShape(shrink, device) {
    tokens = parameter("wte", {shrink == 1 ? 50257 : 4200 / shrink, width});
    places = parameter("wpe", {shrink == 1 ? 1024 : 16, width});
    for (int64_t k = 0; k < 12; ++k) {
      const std::string name = "h" + std::to_string(k);
      torch::nn::LayerNorm first = layer_norm(name + "_ln_1", width);
      const Layer qkv = linear(name + "_qkv", width, 3 * width);
      const Layer projection = linear(name + "_projection", width, width);
      torch::nn::LayerNorm second = layer_norm(name + "_ln_2", width);
      const Layer widen = linear(name + "_widen", width, 4 * width);
      const Layer narrow = linear(name + "_narrow", 4 * width, width);
      layers.push_back([=](const at::Tensor& x) mutable {
        const auto parts = qkv(first->forward(x)).chunk(3, -1);
        const at::Tensor y = x + projection(attend(parts[0], parts[1], parts[2]));
        return y + narrow(at::gelu(widen(second->forward(y))));
      });
    }
    torch::nn::LayerNorm last = layer_norm("ln_f", width);
    layers.push_back([=](const at::Tensor& x) mutable { return last->forward(x); });
  }

  at::Tensor loss() override {
    at::Tensor x = at::embedding(tokens, ids()) + places.narrow(0, 0, 4);
    for (const Layer& layer : layers) {
      x = layer(x);
    }
    return at::linear(x, tokens).to(at::kFloat).square().mean();
  }

  at::Tensor tokens;
  at::Tensor places;
  std::vector<Layer> layers;
};

/// Hugging Face's bert-base-uncased with a classifier: 201 parameters.
struct BertShape final : TransformerShape {
  BertShape(int64_t shrink, c10::Device device) : TransformerShape(shrink, device) {
    tokens = parameter("word_embeddings", {shrink == 1 ? 30522 : 2600 / shrink, width});
    places = parameter("position_embeddings", {shrink == 1 ? 512 : 16, width});
    types = parameter("type_embeddings", {2, width});
    torch::nn::LayerNorm start = layer_norm("embeddings_norm", width);
    layers.push_back([=](const at::Tensor& x) mutable { return start->forward(x); });
    for (int64_t k = 0; k < 12; ++k) {
      const std::string name = "layer" + std::to_string(k);
      const Layer query = linear(name + "_query", width, width);
      const Layer key = linear(name + "_key", width, width);
      const Layer value = linear(name + "_value", width, width);
      const Layer output = linear(name + "_output", width, width);
      torch::nn::LayerNorm first = layer_norm(name + "_norm_1", width);
      const Layer widen = linear(name + "_widen", width, 4 * width);
      const Layer narrow = linear(name + "_narrow", 4 * width, width);
      torch::nn::LayerNorm second = layer_norm(name + "_norm_2", width);
      layers.push_back([=](const at::Tensor& x) mutable {
        const at::Tensor y = first->forward(x + output(attend(query(x), key(x), value(x))));
        return second->forward(y + narrow(at::gelu(widen(y))));
      });
    }
    const Layer pooler = linear("pooler", width, width);
    const Layer classifier = linear("classifier", width, 2);
    layers.push_back(
        [=](const at::Tensor& x) { return classifier(at::tanh(pooler(x.select(1, 0)))); });
  }

  at::Tensor loss() override {
    at::Tensor x = at::embedding(tokens, ids()) + places.narrow(0, 0, 4) + types.select(0, 0);
    for (const Layer& layer : layers) {
      x = layer(x);
    }
    return x.to(at::kFloat).square().mean();
  }

  at::Tensor tokens;
  at::Tensor places;
  at::Tensor types;
  std::vector<Layer> layers;
};

}  // namespace lockstep::testing
