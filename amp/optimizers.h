#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/moment_format.h>
#include <lockstep/amp/optimizer.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/amp/impl/grouped.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

// Every fused optimizer computes in fp32 at every precision level, and in fp64 on the fp64
// parameters of a model at O0. On fp64 parameters AdamW, Adam and SGD have the bits of torch.optim
// in Python, where the processor has fused multiply-add. All take parameter groups, which inherit
// the options of the optimizer: group(predicate, options), group(predicate, function) and
// no_decay_on_norms_and_biases(), see amp/impl/grouped.h. moments(...) sets the storage format of
// the moments, see MomentFormat.

/// AdamW with decoupled weight decay (Loshchilov and Hutter, 2019). Formula and defaults of
/// torch.optim.AdamW.
class AdamW final : public amp::Grouped<AdamW> {
 public:
  static constexpr const char* kName = "AdamW";
  AdamW() = default;
  explicit AdamW(double lr) { this->lr(lr); }
  LOCKSTEP_OPTIMIZER_ARG(double, lr) = 1e-3;
  LOCKSTEP_OPTIMIZER_ARG(double, beta1) = 0.9;
  LOCKSTEP_OPTIMIZER_ARG(double, beta2) = 0.999;
  /// Requires: > 0 in fp32; with 0, an element whose gradients are all 0 would become 0 / 0.
  LOCKSTEP_OPTIMIZER_ARG(double, eps) = 1e-8;
  LOCKSTEP_OPTIMIZER_ARG(double, weight_decay) = 1e-2;
  LOCKSTEP_OPTIMIZER_ARG(MomentFormat, moments) = MomentFormat::fp32;

 public:
  std::shared_ptr<const amp::UpdateRule> own_rule() const;
  std::string describe_options() const;
  void check_options() const;
};

/// Adam (Kingma and Ba, 2015) with L2 weight decay added to the gradient, as torch.optim.Adam.
class Adam final : public amp::Grouped<Adam> {
 public:
  static constexpr const char* kName = "Adam";
  Adam() = default;
  explicit Adam(double lr) { this->lr(lr); }
  LOCKSTEP_OPTIMIZER_ARG(double, lr) = 1e-3;
  LOCKSTEP_OPTIMIZER_ARG(double, beta1) = 0.9;
  LOCKSTEP_OPTIMIZER_ARG(double, beta2) = 0.999;
  /// Requires: > 0 in fp32; with 0, an element whose gradients are all 0 would become 0 / 0.
  LOCKSTEP_OPTIMIZER_ARG(double, eps) = 1e-8;
  LOCKSTEP_OPTIMIZER_ARG(double, weight_decay) = 0.0;
  LOCKSTEP_OPTIMIZER_ARG(MomentFormat, moments) = MomentFormat::fp32;

 public:
  std::shared_ptr<const amp::UpdateRule> own_rule() const;
  std::string describe_options() const;
  void check_options() const;
};

/// Stochastic gradient descent with momentum, Nesterov momentum and L2 weight decay, as
/// torch.optim.SGD (its first update sets the momentum buffer to the gradient).
class SGD final : public amp::Grouped<SGD> {
 public:
  static constexpr const char* kName = "SGD";
  explicit SGD(double lr) { this->lr(lr); }
  LOCKSTEP_OPTIMIZER_ARG(double, lr) = 0.0;
  LOCKSTEP_OPTIMIZER_ARG(double, momentum) = 0.0;
  LOCKSTEP_OPTIMIZER_ARG(double, dampening) = 0.0;
  LOCKSTEP_OPTIMIZER_ARG(double, weight_decay) = 0.0;
  LOCKSTEP_OPTIMIZER_ARG(bool, nesterov) = false;
  LOCKSTEP_OPTIMIZER_ARG(MomentFormat, moments) = MomentFormat::fp32;

 public:
  std::shared_ptr<const amp::UpdateRule> own_rule() const;
  std::string describe_options() const;
  void check_options() const;
};

/// LAMB (You et al., 2020). An update is AdamW's direction, with bias correction, times the
/// learning rate, times the parameter's trust ratio |weight| / |direction|. The trust ratio is 1
/// where either norm is 0, and in groups without weight decay, as in Apex's FusedLAMB. Apex also
/// clips the gradient norm to 1; for that, set TrainerOptions().clip_grad_norm(1.0).
class LAMB final : public amp::Grouped<LAMB> {
 public:
  static constexpr const char* kName = "LAMB";
  LAMB() = default;
  explicit LAMB(double lr) { this->lr(lr); }
  LOCKSTEP_OPTIMIZER_ARG(double, lr) = 1e-3;
  LOCKSTEP_OPTIMIZER_ARG(double, beta1) = 0.9;
  LOCKSTEP_OPTIMIZER_ARG(double, beta2) = 0.999;
  /// Requires: > 0 in fp32.
  LOCKSTEP_OPTIMIZER_ARG(double, eps) = 1e-6;
  LOCKSTEP_OPTIMIZER_ARG(double, weight_decay) = 1e-2;
  LOCKSTEP_OPTIMIZER_ARG(MomentFormat, moments) = MomentFormat::fp32;

 public:
  std::shared_ptr<const amp::UpdateRule> own_rule() const;
  std::string describe_options() const;
  void check_options() const;
};

/// Lion (Chen et al., 2023). An update moves the weight by lr against the sign of beta1 * moment +
/// (1 - beta1) * gradient. Weight decay is decoupled. One moment.
class Lion final : public amp::Grouped<Lion> {
 public:
  static constexpr const char* kName = "Lion";
  Lion() = default;
  explicit Lion(double lr) { this->lr(lr); }
  LOCKSTEP_OPTIMIZER_ARG(double, lr) = 1e-4;
  LOCKSTEP_OPTIMIZER_ARG(double, beta1) = 0.9;
  LOCKSTEP_OPTIMIZER_ARG(double, beta2) = 0.99;
  LOCKSTEP_OPTIMIZER_ARG(double, weight_decay) = 0.0;
  LOCKSTEP_OPTIMIZER_ARG(MomentFormat, moments) = MomentFormat::fp32;

 public:
  std::shared_ptr<const amp::UpdateRule> own_rule() const;
  std::string describe_options() const;
  void check_options() const;
};

/// Runs any torch::optim optimizer on the fp32 (or fp64) masters. Slower than the fused optimizers
/// above. The factory is called once, with the masters in the model's registration order. The
/// schedule scales the lr of each group. The factory may keep a pointer to the optimizer. Through
/// it, options may be edited between steps, in the same way on every rank: the lr of a group, as
/// with Trainer::set_learning_rate() (an lr that is read or written there includes the schedule's
/// factor), and any other option that step() reads. Errors: Error at construction for LBFGS and
/// other optimizers that need a closure. Adagrad without initial_accumulator_value divides the
/// first gradient by itself. Where that gradient is only rounding error (a bias before batch norm),
/// the weights depend on the order of additions, here as in plain LibTorch.
///
/// With shard_optimizer the factory gets, in the place of each master, the elements that this rank
/// updates, perhaps none, with as many dimensions as the master: {1, 1, n} of a master with three.
/// That is allowed for Adam, AdamW, SGD, Adagrad and RMSprop of torch::optim, which update each
/// element by itself, and for MuonOptimizer::of(). With several compute threads low bits may differ
/// from those of a run without: LibTorch's loops round the ends of each thread's range otherwise.
class TorchOptimizer final : public OptimizerSpec {
 public:
  using Factory =
      std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> masters)>;
  /// `whole`: for which parameters one rank must have all elements; unset: for none.
  explicit TorchOptimizer(Factory factory, std::function<bool(const ModelTensor&)> whole = nullptr)
      : factory_(std::move(factory)), whole_(std::move(whole)) {}

  const TorchOptimizer* by_torch() const override { return this; }
  bool needs_whole(const ModelTensor& parameter) const override;
  std::string describe() const override;
  void validate() const override;
  std::shared_ptr<OptimizerSpec> clone() const override;
  /// The optimizer on the masters. Throws Error if the factory returns one that cannot be used.
  std::unique_ptr<torch::optim::Optimizer> build(std::vector<at::Tensor> masters) const;

 private:
  Factory factory_;
  std::function<bool(const ModelTensor&)> whole_;
};

}  // namespace lockstep
