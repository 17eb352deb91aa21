#include "layer_pairs.h"

#include <ATen/ATen.h>
#include <lockstep/amp/fused_layers.h>

namespace lockstep::benchmarks {

LayerInputs::LayerInputs(int64_t rows, int64_t columns, at::ScalarType dtype, c10::Device device)
    : width(columns) {
  const auto options = at::TensorOptions().device(device);
  const auto leaf = [](const at::Tensor& values) { return values.requires_grad_(true); };
  x = leaf(at::randn({rows, width}, options).to(dtype));
  slope = at::randn({rows, width}, options).to(dtype);
  weight = leaf(at::ones({width}, options));
  bias = leaf(at::zeros({width}, options));
  own_weight = leaf(at::ones({width}, options.dtype(dtype)));
  own_bias = leaf(at::zeros({width}, options.dtype(dtype)));
  targets = at::randint(width, {rows}, options.dtype(at::kLong));
}

void LayerInputs::forget_gradients() {
  for (at::Tensor* leaf : {&x, &weight, &bias, &own_weight, &own_bias}) {
    leaf->mutable_grad().reset();
  }
}

const std::vector<LayerPair>& layer_pairs() {
  using Inputs = LayerInputs;
  static const std::vector<LayerPair> pairs = {
      {"layer_norm", [](const Inputs& i) { return fused_layer_norm(i.x, i.weight, i.bias); },
       [](const Inputs& i) {
         return at::layer_norm(i.x, {i.width}, i.own_weight, i.own_bias, 1e-5);
       }},
      {"rms_norm", [](const Inputs& i) { return fused_rms_norm(i.x, i.weight); },
       [](const Inputs& i) { return at::rms_norm(i.x, {i.width}, i.own_weight, 1e-6); }},
      {"bias_gelu", [](const Inputs& i) { return fused_bias_gelu(i.x, i.bias); },
       [](const Inputs& i) { return at::gelu(i.x + i.own_bias, "tanh"); }},
      {"cross_entropy", [](const Inputs& i) { return fused_cross_entropy(i.x, i.targets, 0.1); },
       [](const Inputs& i) {
         return at::cross_entropy_loss(i.x, i.targets, {}, at::Reduction::Mean, -100, 0.1);
       }},
  };
  return pairs;
}

void run_backward(const at::Tensor& y, const LayerInputs& inputs) {
  if (y.dim() == 0) {
    y.backward();
  } else {
    y.backward(inputs.slope);
  }
}

}  // namespace lockstep::benchmarks
