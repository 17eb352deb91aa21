#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// What a step's closure returns: a mean over this rank's micro-batch, or a sum with its weight.
///
/// With a mean, the update's gradient is the average over micro-batches and ranks, each counting
/// alike. With Loss::sum(tensor, weight) it is the sum of all gradients divided by the sum of all
/// weights (token counts, say) over micro-batches and ranks, so uneven shares average rightly.
/// A Trainer is given one kind throughout, on all ranks and micro-batches (Error otherwise).
class Loss {
 public:
  Loss(at::Tensor mean) : tensor_(std::move(mean)) {}  // NOLINT(google-explicit-constructor)
  /// `weight` >= 0; 0 for a micro-batch that has nothing to count.
  static Loss sum(at::Tensor total, double weight);

  const at::Tensor& tensor() const { return tensor_; }
  bool is_sum() const { return is_sum_; }
  double weight() const { return weight_; }

 private:
  at::Tensor tensor_;
  bool is_sum_ = false;
  double weight_ = 1.0;
};

/// Throws Error unless `loss` is what backward can start from: one floating-point element that
/// depends on a trainable parameter.
void require_scalar_with_grad(const at::Tensor& loss);

}  // namespace lockstep
