#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Lowers the learning rate of every group when a metric has stopped improving. Rules and defaults
/// are those of torch.optim.lr_scheduler.ReduceLROnPlateau. Set as
/// TrainerOptions::reduce_on_plateau; pass the metric to Trainer::reduce_on_plateau(). Snapshots of
/// the Trainer hold the state of the rule. Threads and ranks: a plain value, the same on every
/// rank.
struct ReduceOnPlateau {
  enum class Mode { min, max };          // min: a lower metric is better; max: a higher one
  enum class Threshold { rel, abs };     // threshold: relative to the best metric, or absolute
  TORCH_ARG(double, factor) = 0.1;       // factor on the rates. Requires: 0 < factor < 1
  TORCH_ARG(int64_t, patience) = 10;     // metrics without improvement that are tolerated
  TORCH_ARG(std::optional<Mode>, mode);  // unset: what the metric says, else min
  TORCH_ARG(double, threshold) = 1e-4;   // smaller improvements do not count. Requires: >= 0
  TORCH_ARG(Threshold, threshold_mode) = Threshold::rel;
  TORCH_ARG(int64_t, cooldown) = 0;  // metrics that are ignored after a reduction
  TORCH_ARG(double, min_lr) = 0.0;   // lower bound of every rate. Requires: >= 0
  TORCH_ARG(double, eps) = 1e-8;     // a rate change of eps or less is not made. Requires: >= 0

 public:
  /// Throws an Error that names the option with a value out of range.
  void validate() const;
  std::string describe() const;
};

}  // namespace lockstep
