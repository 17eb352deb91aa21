#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/amp/impl/step_state.h>
#include <lockstep/amp/moment_format.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::amp {

/// Consecutive elements of one bucket, with every array that an update of them needs. All arrays
/// have the same length, are contiguous, start at a multiple of 64 bytes and are on one device.
struct FlatSpan {
  /// Wire dtype: fp32, fp16 or bf16; for an fp64 master fp64 or fp32.
  at::Tensor gradient;
  /// fp32; undefined at O3: `weight` is then updated, in fp32. fp64: moments and average are fp64,
  /// too, and there is no `weight`.
  at::Tensor master;
  at::Tensor weight;                // the model's dtype; undefined if the master is the weight
  std::vector<at::Tensor> moments;  // UpdateRule::moments() arrays: fp32 or bf16
  /// int16, for a bf16 `weight` without master: the remainder that makes the weight an exact fp32
  /// master (split_master in amp/update/brain_rounding.h).
  at::Tensor remainder;
  /// fp32: an exponential moving average of the updated array. The update advances it in the same
  /// pass: average += average_rest * (updated - average).
  at::Tensor average;
  double average_rest = 0.0;
  /// Round the bf16 `weight` stochastically, not to nearest. Only for a weight with neither master
  /// nor remainder.
  bool rounds_randomly = false;
  /// Seeds the random numbers of stochastic rounding (of this weight, and of bf16 moments):
  /// `stream` is a number for the array, `first_element` the number in the array of the first
  /// element of this span. It is even: two neighbours share a draw.
  uint64_t stream = 0;
  int64_t first_element = 0;
  /// One fp64 element on the span's device: a learning rate that replaces the rule's own. It is
  /// read when the update runs, so a launch of a captured CUDA graph uses the current value.
  at::Tensor learning_rate;
  /// One int64 element on the span's device: the number of real updates that these elements missed
  /// because they had no gradient.
  at::Tensor missed;
  /// For an fp64 master: two fp64 elements in host memory, which replace the fp32 numbers
  /// StepState::gradient_factor and gradient_limit.
  at::Tensor gradient_scale;
};

/// The arithmetic of one optimizer with one set of hyper-parameters, on flat arrays.
/// Threads: const and stateless, any thread. Ranks: local, no communication.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual int moments() const = 0;
  /// The names of the moments in torch.optim ("exp_avg"); snapshots use them.
  virtual std::vector<std::string> moment_names() const = 0;
  virtual MomentFormat moment_format() const = 0;
  /// True if each span that apply() gets must be exactly one parameter, because the update of an
  /// element depends on all elements of the parameter.
  virtual bool whole_parameters() const { return false; }
  /// Runs the update in one pass: gradient * state.gradient_factor, clipped -> optimizer in fp32 on
  /// master and moments -> master, weight and average written. Writes nothing if state.skip is set.
  /// `state` points to a StepState in the memory of the span's device. An fp64 master is updated in
  /// fp64; throws Error if such a master is not in host memory.
  virtual void apply(const FlatSpan& span, const StepState* state) const = 0;
  /// Calls apply() on each span. All spans are on one device; on a GPU this takes fewer launches.
  virtual void apply_all(const std::vector<FlatSpan>& spans, const StepState* state) const {
    for (const FlatSpan& span : spans) {
      apply(span, state);
    }
  }
};

}  // namespace lockstep::amp
