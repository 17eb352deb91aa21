#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::amp {

/// The sums that cross-entropy needs of the logits of a block of classes. Each is an fp64 vector
/// with one element for each row: log(sum(exp)), the sum, and the logit of the target (0 if the
/// target is in another block).
struct ClassSums {
  at::Tensor log_sum_exp;
  at::Tensor sum;
  at::Tensor target;
};

/// The targets, for a block whose first class is `first`.
struct BlockTargets {
  at::Tensor classes;  // int64 (rows)
  int64_t first = 0;
  int64_t ignore_index = -100;
};

/// `logits`: contiguous (rows, classes of the block), fp32, fp16 or bf16. On the CPU by lockstep's
/// kernels, elsewhere by composed_sum_classes(). Any thread; the host does not wait.
ClassSums sum_classes(const at::Tensor& logits, const BlockTargets& targets);

/// gradient = factor[row] * (exp(logit - log_sums[row]) - rest), minus factor[row] * on_target for
/// the target; 0 in ignored rows; `gradient` has the shape and dtype of `logits`. log_sums: fp64,
/// factor: fp32 (rows).
void slope_of_classes(const at::Tensor& gradient, const at::Tensor& logits,
                      const BlockTargets& targets, const at::Tensor& log_sums,
                      const at::Tensor& factor, double rest, double on_target);

/// The same with LibTorch's operators, for any device.
ClassSums composed_sum_classes(const at::Tensor& logits, const BlockTargets& targets);
void composed_slope_of_classes(const at::Tensor& gradient, const at::Tensor& logits,
                               const BlockTargets& targets, const at::Tensor& log_sums,
                               const at::Tensor& factor, double rest, double on_target);

}  // namespace lockstep::amp
