#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lockstep::benchmarks {

/// What a fused layer and LibTorch's operators take, of one shape.
struct LayerInputs {
  LayerInputs(int64_t rows, int64_t columns, at::ScalarType dtype, c10::Device device);
  void forget_gradients();

  int64_t width;
  at::Tensor x, slope;              // rows x width; slope is the gradient of an output
  at::Tensor weight, bias;          // fp32, as Precision keeps norms
  at::Tensor own_weight, own_bias;  // of x's dtype, as LibTorch's operators want them
  at::Tensor targets;
};

/// A layer of amp/fused_layers.h and LibTorch's operators for the same.
struct LayerPair {
  using Layer = std::function<at::Tensor(const LayerInputs&)>;
  const char* name;
  Layer ours;
  Layer libtorch;
};

const std::vector<LayerPair>& layer_pairs();

/// The backward pass of `y`: of a loss, or with inputs.slope as its gradient.
void run_backward(const at::Tensor& y, const LayerInputs& inputs);

}  // namespace lockstep::benchmarks
