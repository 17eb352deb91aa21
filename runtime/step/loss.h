#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep {

/// What the closure of a step returns: a mean over this rank's micro-batch, a sum with its weight,
/// or several means.
///
///   - A mean: the update's gradient is the average over micro-batches and ranks, with equal
///     weights.
///   - Loss::sum(tensor, weight): the update's gradient is the sum of all gradients divided by the
///     sum of all weights (for example token counts), over micro-batches and ranks. Uneven shares
///     are therefore averaged correctly.
///   - Loss::several (see TrainerOptions::losses): the sum of the gradients of the means.
/// All losses of a Trainer must be of one kind, on all ranks and in all micro-batches (Error
/// otherwise).
class Loss {
 public:
  Loss(at::Tensor mean)  // NOLINT(google-explicit-constructor)
      : tensor_(std::move(mean)), parts_{tensor_} {}
  /// `weight`: finite and >= 0. 0 for a micro-batch in which nothing counts.
  static Loss sum(at::Tensor total, double weight);
  /// Means that are added, each with a separate loss scale. They may share an autograd graph.
  /// Throws Error if `means` is empty, or if a mean is not a scalar with a gradient.
  static Loss several(std::vector<at::Tensor> means);

  /// The whole loss; for Loss::several the sum of the means.
  const at::Tensor& tensor() const { return tensor_; }
  /// The means of Loss::several; otherwise tensor() alone.
  const std::vector<at::Tensor>& parts() const { return parts_; }
  bool is_sum() const { return is_sum_; }
  double weight() const { return weight_; }

 private:
  at::Tensor tensor_;
  std::vector<at::Tensor> parts_;
  bool is_sum_ = false;
  double weight_ = 1.0;
};

/// Throws Error unless backward can start from `loss`: one floating-point element that depends on a
/// trainable parameter.
void require_scalar_with_grad(const at::Tensor& loss);

/// Calls loss.backward(). If an earlier backward (possibly of another Trainer) has freed the graph
/// of this loss, throws an Error that says what to do.
void run_backward(const at::Tensor& loss, bool keep_graph = false);

}  // namespace lockstep
