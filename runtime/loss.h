#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep {

/// What a step's closure returns: a mean over this rank's micro-batch, or a sum with its weight.
///
/// With a mean, the update's gradient is the average over micro-batches and ranks, each counting
/// alike. With Loss::sum(tensor, weight) it is the sum of all gradients divided by the sum of all
/// weights (token counts, say) over micro-batches and ranks, so uneven shares average rightly.
/// With Loss::several (see TrainerOptions::losses) it is the sum of the gradients of the means.
/// A Trainer is given one kind throughout, on all ranks and micro-batches (Error otherwise).
class Loss {
 public:
  Loss(at::Tensor mean)  // NOLINT(google-explicit-constructor)
      : tensor_(std::move(mean)), parts_{tensor_} {}
  /// `weight` >= 0; 0 for a micro-batch that has nothing to count.
  static Loss sum(at::Tensor total, double weight);
  /// Means that are added, each with a loss scale of its own; they may share a graph. Throws Error
  /// for no mean, and for one that is no scalar with a gradient.
  static Loss several(std::vector<at::Tensor> means);

  /// All of it.
  const at::Tensor& tensor() const { return tensor_; }
  /// The means of Loss::several; else tensor() alone.
  const std::vector<at::Tensor>& parts() const { return parts_; }
  bool is_sum() const { return is_sum_; }
  double weight() const { return weight_; }

 private:
  at::Tensor tensor_;
  std::vector<at::Tensor> parts_;
  bool is_sum_ = false;
  double weight_ = 1.0;
};

/// Throws Error unless `loss` is what backward can start from: one floating-point element that
/// depends on a trainable parameter.
void require_scalar_with_grad(const at::Tensor& loss);

/// loss.backward(). Where an earlier backward has freed the graph of this loss, which another
/// Trainer's may have been, throws Error that says what to do.
void run_backward(const at::Tensor& loss, bool keep_graph = false);

}  // namespace lockstep
