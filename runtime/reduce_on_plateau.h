#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <string>

namespace lockstep {

/// Lowers the learning rate of every group when a metric has stopped improving: the rules and
/// defaults of torch.optim.lr_scheduler.ReduceLROnPlateau. An option of the Trainer, which keeps
/// what the rule remembers in its snapshots; Trainer::reduce_on_plateau() gives it the metric.
/// Threads and ranks: a value, the same on every rank.
struct ReduceOnPlateau {
  enum class Mode { min, max };       // what is better: less or more
  enum class Threshold { rel, abs };  // an improvement is a share of the best metric, or a number
  TORCH_ARG(double, factor) = 0.1;    // what rates are multiplied by. Requires: 0 < factor < 1
  TORCH_ARG(int64_t, patience) = 10;  // metrics without improvement that are forgiven
  TORCH_ARG(Mode, mode) = Mode::min;
  TORCH_ARG(double, threshold) = 1e-4;  // what must be exceeded to improve. Requires: >= 0
  TORCH_ARG(Threshold, threshold_mode) = Threshold::rel;
  TORCH_ARG(int64_t, cooldown) = 0;  // metrics after a reduction that are not counted
  TORCH_ARG(double, min_lr) = 0.0;   // no rate goes below. Requires: >= 0
  TORCH_ARG(double, eps) = 1e-8;     // smaller changes of a rate are not made. Requires: >= 0

 public:
  /// Throws Error naming the option.
  void validate() const;
  std::string describe() const;
};

}  // namespace lockstep
