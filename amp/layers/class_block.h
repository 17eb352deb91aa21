#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::amp {

/// What cross-entropy reads of the logits of a block of classes, an fp64 vector of one element for
/// each row: log(sum(exp)), the sum, and the logit of the target, 0 where the block does not hold
/// it.
struct ClassSums {
  at::Tensor log_sum_exp;
  at::Tensor sum;
  at::Tensor target;
};

/// Targets of the classes in a block, of which the first one is `first`.
struct BlockTargets {
  at::Tensor classes;  // int64 (rows)
  int64_t first = 0;
  int64_t ignore_index = -100;
};

/// `logits`: contiguous (rows, classes of the block), fp32, fp16 or bf16. On the CPU in lockstep's
/// kernels, elsewhere by composed_sum_classes(). Any thread; the host does not wait.
ClassSums sum_classes(const at::Tensor& logits, const BlockTargets& targets);

/// gradient = factor[row] * (exp(logit - log_sums[row]) - rest - on_target where it is the target),
/// 0 in ignored rows; `gradient` has the shape and dtype of `logits`. log_sums: fp64, factor: fp32
/// (rows).
void slope_of_classes(const at::Tensor& gradient, const at::Tensor& logits,
                      const BlockTargets& targets, const at::Tensor& log_sums,
                      const at::Tensor& factor, double rest, double on_target);

/// The same composed of LibTorch's operators, for any device.
ClassSums composed_sum_classes(const at::Tensor& logits, const BlockTargets& targets);
void composed_slope_of_classes(const at::Tensor& gradient, const at::Tensor& logits,
                               const BlockTargets& targets, const at::Tensor& log_sums,
                               const at::Tensor& factor, double rest, double on_target);

}  // namespace lockstep::amp
