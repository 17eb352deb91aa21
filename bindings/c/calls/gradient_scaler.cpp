#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <lockstep/bindings/c/calls/gradient_scaler.h>
#include <torch/optim/sgd.h>

#include <memory>

namespace lockstep::c {

GradientScaler::Gradients::Gradients()
    : Optimizer(std::vector<at::Tensor>(), std::make_unique<torch::optim::SGDOptions>(0.0)) {}

void GradientScaler::Gradients::set(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor>& holders = param_groups().front().params();
  holders.clear();
  for (const at::Tensor& gradient : gradients) {
    holders.push_back(at::empty_like(gradient));
    holders.back().mutable_grad() = gradient;
  }
}

at::Tensor GradientScaler::Gradients::step(LossClosure /*closure*/) {
  return {};
}

bool GradientScaler::unscale(const std::vector<at::Tensor>& gradients) {
  gradients_.set(gradients);
  scaler_.scale(at::zeros({}));  // LossScaler counts the losses; the program has scaled its own
  return scaler_.step(gradients_);
}

}  // namespace lockstep::c
