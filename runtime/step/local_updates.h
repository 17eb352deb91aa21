#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <string>

namespace lockstep {

/// Few exchanges over slow links: each rank updates its own weights with its own gradients, and the
/// ranks exchange weights after every `updates`-th update (TrainerOptions::local_updates). The
/// updates between two exchanges are a round.
///
/// At the end of a round the mean over the ranks of (weights at the start of the round - weights
/// now) is the gradient of an outer SGD step on the weights at the start of the round. All ranks go
/// on from the result. The arithmetic is that of torch.optim.SGD, in fp32 (fp64 for fp64
/// parameters).
///   LocalUpdates(h)           the outer step is the average of the ranks' weights: LocalSGD
///   LocalUpdates::diloco(h)   the outer step has Nesterov momentum: DiLoCo (arXiv 2311.08105)
/// With h = 1 and plain SGD an average is a synchronous update, up to rounding.
///
/// docs/local-updates.md says what ranks share between two exchanges, and what is refused.
/// Threads and ranks: a plain value, the same on every rank.
struct LocalUpdates {
  explicit LocalUpdates(int64_t updates) : updates_(updates) {}
  /// Outer learning rate 0.7 and Nesterov momentum 0.9, as in the paper.
  static LocalUpdates diloco(int64_t updates) {
    return LocalUpdates(updates).outer_lr(0.7).outer_momentum(0.9).outer_nesterov(true);
  }

  /// Updates of a round, made or skipped. Requires: >= 1.
  TORCH_ARG(int64_t, updates);
  /// Learning rate of the outer step. 1 without momentum: the average. Requires: > 0.
  TORCH_ARG(double, outer_lr) = 1.0;
  /// Momentum of the outer step. Requires: 0 <= momentum < 1. Not 0: costs 4 bytes per parameter.
  TORCH_ARG(double, outer_momentum) = 0.0;
  /// Requires: outer_momentum > 0.
  TORCH_ARG(bool, outer_nesterov) = false;
  /// True: at the end of a round the optimizer's moments are averaged over the ranks too. False:
  /// each rank keeps its own.
  TORCH_ARG(bool, average_moments) = false;

 public:
  /// Throws an Error that names the option with a value out of range.
  void validate() const;
  std::string describe() const;
};

}  // namespace lockstep
