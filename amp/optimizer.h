#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/amp/moment_format.h>
#include <lockstep/amp/step_state.h>
#include <torch/arg.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

struct ModelTensor;

namespace amp {

/// A run of neighbouring elements of one bucket: all arrays have the same length, are contiguous,
/// start at a multiple of 64 bytes and lie on one device.
struct FlatSpan {
  at::Tensor gradient;  // wire dtype: fp32, fp16 or bf16
  at::Tensor master;    // fp32; at O3 undefined: then `weight` is updated, in fp32 maths
  at::Tensor weight;    // the model's dtype; undefined where the master is the weight
  std::vector<at::Tensor> moments;        // UpdateRule::moments() of them: fp32, bf16 or int8 codes
  std::vector<at::Tensor> moment_scales;  // for int8 codes: fp32, one per moment_block elements
  /// int16: with `weight` in bf16 and no master, the rest that makes it an exact fp32 master
  /// (split_master in amp/brain_rounding.h).
  at::Tensor remainder;
  /// fp32: an exponential moving average of the updated array, moved in the same pass by
  /// average += average_rest * (updated - average).
  at::Tensor average;
  float average_rest = 0.0F;
  /// A bf16 `weight` without master and remainder is rounded randomly, not to nearest.
  bool rounds_randomly = false;
  /// Where random rounding (of this weight, of bf16 and int8 moments) takes its numbers from: a
  /// number of the array, and of its element that this span begins with.
  uint64_t stream = 0;
  int64_t first_element = 0;
  /// One fp64 element on the span's device: the learning rate, instead of the rule's own. Read when
  /// the update runs, so that a launch of a captured CUDA graph sees the rate of its time.
  at::Tensor learning_rate;
  /// One int64 element there: real updates that these elements missed, having had no gradient.
  at::Tensor missed;
};

/// The arithmetic of one optimizer with one set of hyper-parameters, over flat arrays.
/// Threads: const and stateless, any thread. Ranks: local, no communication.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual int moments() const = 0;
  /// What torch.optim calls each of them ("exp_avg"): under these names they are saved.
  virtual std::vector<std::string> moment_names() const = 0;
  virtual MomentFormat moment_format() const = 0;
  /// True where apply() needs spans that are exactly one parameter each, because the update of an
  /// element depends on all of them.
  virtual bool whole_parameters() const { return false; }
  /// One pass: gradient * state.gradient_factor, clipped -> optimizer in fp32 on master and
  /// moments -> master, weight and average written. Nothing is written when state.skip. `state` is
  /// a StepState in the span's device memory.
  virtual void apply(const FlatSpan& span, const StepState* state) const = 0;
  /// apply() on each of the spans, which lie on one device; there, with fewer launches.
  virtual void apply_all(const std::vector<FlatSpan>& spans, const StepState* state) const {
    for (const FlatSpan& span : spans) {
      apply(span, state);
    }
  }
};

}  // namespace amp

/// What is common to all optimizers: parameter groups. A group is a rule of its own for the
/// parameters that a predicate picks; the last group that matches wins; others use the base.
class OptimizerSpec {
 public:
  virtual ~OptimizerSpec() = default;
  /// Index of the group of this parameter: 0 is the base rule, i the i-th group().
  int group_of(const ModelTensor& parameter) const;
  int groups() const { return 1 + static_cast<int>(predicates_.size()); }
  virtual std::shared_ptr<const amp::UpdateRule> rule(int group) const = 0;
  virtual double learning_rate(int group) const = 0;
  /// "AdamW lr 0.0003 weight_decay 0.1, 1 group"
  virtual std::string describe() const = 0;
  /// Throws Error naming the option.
  virtual void validate() const = 0;
  virtual std::shared_ptr<OptimizerSpec> clone() const = 0;
  /// Non-null for TorchOptimizer: built once, on the fp32 masters; then rule() is not used.
  virtual std::unique_ptr<torch::optim::Optimizer> build(std::vector<at::Tensor> masters) const;

 protected:
  using Predicate = std::function<bool(const ModelTensor&)>;
  std::vector<Predicate> predicates_;
};

}  // namespace lockstep
