#pragma once

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <optional>
#include <string>

namespace lockstep::testing {

/// Autocast on the host for the life of the object.
struct HostAutocast {
  HostAutocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~HostAutocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

inline torch::nn::Sequential normalised(const std::string& kind) {
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
  if (kind == "batch norm") {
    net->push_back(torch::nn::BatchNorm2d(8));
  } else if (kind == "cumulative batch norm") {
    net->push_back(torch::nn::BatchNorm2d(torch::nn::BatchNormOptions(8).momentum(std::nullopt)));
  } else if (kind == "group norm") {
    net->push_back(torch::nn::GroupNorm(2, 8));
  } else {
    net->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({8, 8, 8})));
  }
  net->push_back(torch::nn::ReLU());
  return net;
}

struct AttentionImpl : torch::nn::Cloneable<AttentionImpl> {
  AttentionImpl() { reset(); }
  void reset() override {
    layer = register_module(
        "layer",
        torch::nn::TransformerEncoderLayer(
            torch::nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0.2)));
  }
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
  torch::nn::TransformerEncoderLayer layer{nullptr};
};
TORCH_MODULE(Attention);

struct RecurrentImpl : torch::nn::Cloneable<RecurrentImpl> {
  RecurrentImpl() { reset(); }
  void reset() override {
    lstm = register_module(
        "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(16, 8).num_layers(2).dropout(0.3)));
  }
  at::Tensor forward(const at::Tensor& x) {
    auto [y, state] = lstm(x);
    return y + std::get<0>(state).sum();
  }
  torch::nn::LSTM lstm{nullptr};
};
TORCH_MODULE(Recurrent);

}  // namespace lockstep::testing
