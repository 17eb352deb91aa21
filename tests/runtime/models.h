#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <memory>

#include "test_device.h"

namespace lockstep::testing {

// Models are on device().

/// One parameter named "weight".
struct OneWeight : torch::nn::Module {
  explicit OneWeight(at::Tensor value) {
    weight = register_parameter("weight", value.to(device()));
  }
  at::Tensor weight;
};

/// Two layers with tanh between: 4 inputs, 2 outputs.
struct Mlp : torch::nn::Module {
  explicit Mlp(int64_t hidden = 8)
      : first(register_module("first", torch::nn::Linear(4, hidden))),
        second(register_module("second", torch::nn::Linear(hidden, 2))) {
    to(device());
  }
  at::Tensor forward(const at::Tensor& x) { return second->forward(at::tanh(first->forward(x))); }
  /// Mean squared error.
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y) {
    return (forward(x).to(at::kFloat) - y).square().mean();
  }
  torch::nn::Linear first;
  torch::nn::Linear second;
};

/// Two branches of which a forward may take one or both: "left.weight", "right.weight", ...
struct Branches : torch::nn::Module {
  Branches()
      : left(register_module("left", torch::nn::Linear(3, 1))),
        right(register_module("right", torch::nn::Linear(3, 1))) {
    to(device());
  }
  torch::nn::Linear left;
  torch::nn::Linear right;
};

/// Gives `to` the parameters and buffers of `from`.
inline void copy_state(const torch::nn::Module& from, torch::nn::Module& to) {
  const at::NoGradGuard no_grad;
  const auto copy = [](const std::vector<at::Tensor>& source,
                       const std::vector<at::Tensor>& target) {
    for (size_t i = 0; i < source.size(); ++i) {
      target[i].copy_(source[i]);
    }
  };
  copy(from.parameters(), to.parameters());
  copy(from.buffers(), to.buffers());
}

inline void clear_gradients(torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.mutable_grad().reset();
  }
}

/// Plain gradient descent on what is in grad().
inline void descend(torch::nn::Module& module, double rate) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.sub_(parameter.grad(), rate);
  }
}

}  // namespace lockstep::testing
