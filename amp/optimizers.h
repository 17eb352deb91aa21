#pragma once

#include <lockstep/amp/optimizer.h>

namespace lockstep {

/// True for biases and for parameters of normalisation layers: those that usually get no weight
/// decay (PyTorch users pass them as a group of their own).
bool is_norm_or_bias(const ModelTensor& parameter);

/// AdamW with decoupled weight decay (Loshchilov and Hutter, 2019), torch.optim.AdamW's formula
/// and defaults. Moments and arithmetic are fp32 at every precision level.
class AdamW final : public OptimizerSpec {
 public:
  explicit AdamW(double lr = 1e-3) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, beta1) = 0.9;
  TORCH_ARG(double, beta2) = 0.999;
  /// Requires: > 0 in fp32, so that an element without gradient stays where it is.
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 1e-2;

 public:
  /// Parameters that `picks` chooses get `options` instead of this rule's own.
  AdamW& group(std::function<bool(const ModelTensor&)> picks, const AdamW& options);
  /// The usual group: no weight decay on norms and biases.
  AdamW& no_decay_on_norms_and_biases();

  std::shared_ptr<const amp::UpdateRule> rule(int group) const override;
  double learning_rate(int group) const override;
  std::string describe() const override;
  void validate() const override;
  std::shared_ptr<OptimizerSpec> clone() const override;

 private:
  std::vector<AdamW> group_options_;
};

/// Adam (Kingma and Ba, 2015) with L2 weight decay added to the gradient, as torch.optim.Adam.
class Adam final : public OptimizerSpec {
 public:
  explicit Adam(double lr = 1e-3) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, beta1) = 0.9;
  TORCH_ARG(double, beta2) = 0.999;
  /// Requires: > 0 in fp32, so that an element without gradient stays where it is.
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0.0;

 public:
  Adam& group(std::function<bool(const ModelTensor&)> picks, const Adam& options);
  Adam& no_decay_on_norms_and_biases();

  std::shared_ptr<const amp::UpdateRule> rule(int group) const override;
  double learning_rate(int group) const override;
  std::string describe() const override;
  void validate() const override;
  std::shared_ptr<OptimizerSpec> clone() const override;

 private:
  std::vector<Adam> group_options_;
};

/// Stochastic gradient descent with momentum, Nesterov momentum and L2 weight decay, as
/// torch.optim.SGD (its first update sets the momentum buffer to the gradient).
class SGD final : public OptimizerSpec {
 public:
  explicit SGD(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0.0;
  TORCH_ARG(double, dampening) = 0.0;
  TORCH_ARG(double, weight_decay) = 0.0;
  TORCH_ARG(bool, nesterov) = false;

 public:
  SGD& group(std::function<bool(const ModelTensor&)> picks, const SGD& options);
  SGD& no_decay_on_norms_and_biases();

  std::shared_ptr<const amp::UpdateRule> rule(int group) const override;
  double learning_rate(int group) const override;
  std::string describe() const override;
  void validate() const override;
  std::shared_ptr<OptimizerSpec> clone() const override;

 private:
  std::vector<SGD> group_options_;
};

/// Any torch::optim optimizer, run on the fp32 masters: the slower path. The factory is called
/// once with the masters, in the model's registration order; the schedule scales each group's lr.
/// Refused with Error at construction: LBFGS and others that need a closure.
class TorchOptimizer final : public OptimizerSpec {
 public:
  using Factory =
      std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> masters)>;
  explicit TorchOptimizer(Factory factory) : factory_(std::move(factory)) {}

  std::shared_ptr<const amp::UpdateRule> rule(int group) const override;
  double learning_rate(int group) const override;
  std::string describe() const override;
  void validate() const override;
  std::shared_ptr<OptimizerSpec> clone() const override;
  std::unique_ptr<torch::optim::Optimizer> build(std::vector<at::Tensor> masters) const override;

 private:
  Factory factory_;
};

}  // namespace lockstep
