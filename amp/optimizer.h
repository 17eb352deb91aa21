#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct ModelTensor;
class FusedOptimizer;
class TorchOptimizer;

namespace amp {
class UpdateRule;
}

/// True for biases and for parameters of normalisation layers. These usually get no weight decay;
/// PyTorch users put them in a separate parameter group.
bool is_norm_or_bias(const ModelTensor& parameter);

/// Base class of all optimizers; holds the parameter groups. A group applies its own options to the
/// parameters that its predicate selects. If several groups match, the last one is used; a
/// parameter that no group matches uses the options of the optimizer.
class OptimizerSpec {
 public:
  virtual ~OptimizerSpec() = default;
  /// Index of the group of this parameter: 0 for the base options, i for the i-th group().
  int group_of(const ModelTensor& parameter) const;
  int groups() const { return 1 + static_cast<int>(predicates_.size()); }
  /// This optimizer as its kind; the other one is null.
  virtual const FusedOptimizer* fused() const { return nullptr; }
  virtual const TorchOptimizer* by_torch() const { return nullptr; }
  /// True if a rank must have all elements of the parameter to update one of them.
  virtual bool needs_whole(const ModelTensor& parameter) const = 0;
  /// "AdamW lr 0.0003 weight_decay 0.1, 2 groups; group 1 lr 0.0003 weight_decay 0". Options
  /// without a name here have their defaults.
  virtual std::string describe() const = 0;
  /// The options of one group, as in describe(). Empty for a TorchOptimizer.
  virtual std::string describe_group(int /*group*/) const { return {}; }
  /// Throws Error that names the option if an option is invalid.
  virtual void validate() const = 0;
  virtual std::shared_ptr<OptimizerSpec> clone() const = 0;

 protected:
  using Predicate = std::function<bool(const ModelTensor&)>;
  std::vector<Predicate> predicates_;
};

/// Base class of the optimizers of lockstep, whose updates are fused: one pass over flat arrays.
class FusedOptimizer : public OptimizerSpec {
 public:
  /// The arithmetic of a group.
  virtual std::shared_ptr<const amp::UpdateRule> rule(int group) const = 0;
  virtual double learning_rate(int group) const = 0;
  const FusedOptimizer* fused() const override { return this; }
  bool needs_whole(const ModelTensor& parameter) const override;
};

}  // namespace lockstep
