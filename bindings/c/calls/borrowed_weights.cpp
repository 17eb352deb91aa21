#include <lockstep/bindings/c/calls/borrowed_weights.h>
#include <lockstep/collectives/check.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <string>

namespace lockstep::c {

BorrowedWeights::BorrowedWeights(const Communicator& communicator,
                                 const std::vector<at::Tensor>& weights,
                                 const DataParallelOptions& options)
    : weights_(weights) {
  const auto module = std::make_shared<torch::nn::Module>();
  for (size_t i = 0; i < weights_.size(); ++i) {
    module->register_parameter("weight_" + std::to_string(i), weights_[i]);
  }
  parallel_ = std::make_unique<DataParallel>(communicator, module, options);
}

void BorrowedWeights::require_fit(const std::vector<at::Tensor>& gradients) const {
  LOCKSTEP_CHECK_CODE(gradients.size() == weights_.size(), ExitCode::data, "there are ",
                      gradients.size(), " gradients for ", weights_.size(), " weights");
  for (size_t i = 0; i < weights_.size(); ++i) {
    LOCKSTEP_CHECK_CODE(gradients[i].sizes() == weights_[i].sizes() &&
                            gradients[i].scalar_type() == weights_[i].scalar_type(),
                        ExitCode::data, "gradient ", i, " is ", gradients[i].scalar_type(), " ",
                        gradients[i].sizes(), ", its weight ", weights_[i].scalar_type(), " ",
                        weights_[i].sizes());
  }
}

std::vector<at::Tensor> BorrowedWeights::average(const std::vector<at::Tensor>& gradients) {
  for (const at::Tensor& weight : weights_) {
    weight.mutable_grad().reset();
  }
  torch::autograd::backward(weights_, gradients);  // calls the hooks of the weights
  parallel_->finish();
  std::vector<at::Tensor> averages;
  for (const at::Tensor& weight : weights_) {
    averages.push_back(weight.grad());
  }
  return averages;
}

}  // namespace lockstep::c
