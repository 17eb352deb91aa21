#pragma once

#include <lockstep/amp/schedule_formula.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// The learning rate as a factor on each group's own rate: a function of the number of real
/// updates made so far (0 before the first), so a skipped update does not advance it.
///
/// Make one of the types below; each constructor throws Error naming the argument that is out of
/// range. All but ScheduleFunction are formulas that are evaluated where the update runs, host or
/// device. Threads and ranks: a value; all ranks must use the same one.
struct Schedule : amp::ScheduleFormula {
  std::shared_ptr<const std::function<double(int64_t)>> function;  // of Kind::function

  /// The factor for the update that follows `updates` real ones. Throws Error where a
  /// ScheduleFunction returns a number that is negative, infinite or NaN.
  float factor(int64_t updates) const;
  /// "WarmupCosine 500 20000 0": equal for equal formulas.
  std::string describe() const;
};

/// Always 1.
struct Constant : Schedule {
  Constant() = default;
};

/// Linear from 0 to 1 over `warmup` updates (update k of them uses (k + 1) / warmup), then linear
/// down to `floor` at `total`. Requires: 0 <= warmup < total, 0 <= floor <= 1.
struct WarmupLinear : Schedule {
  WarmupLinear(int64_t warmup, int64_t total, double floor = 0.0);
};

/// Linear warm-up as above, then half a cosine down to `floor` at `total` (Loshchilov and Hutter,
/// 2017). Requires: 0 <= warmup < total, 0 <= floor <= 1.
struct WarmupCosine : Schedule {
  WarmupCosine(int64_t warmup, int64_t total, double floor = 0.0);
};

/// Linear warm-up as above, then 1, then over the last `decay` updates linear down to `floor` at
/// `total` (warm-up, stable, decay). Requires: 0 <= warmup, 1 <= decay, warmup + decay <= total,
/// 0 <= floor <= 1.
struct WarmupStableDecay : Schedule {
  WarmupStableDecay(int64_t warmup, int64_t decay, int64_t total, double floor = 0.0);
};

/// Multiplied by `gamma` every `every` updates (torch.optim.lr_scheduler.StepLR).
/// Requires: every >= 1, 0 < gamma <= 1.
struct StepDecay : Schedule {
  explicit StepDecay(int64_t every, double gamma = 0.1);
};

/// Multiplied by `gamma` at each of `milestones`, which are numbers of updates
/// (torch.optim.lr_scheduler.MultiStepLR). Requires: 1 to 16 milestones in ascending order, all
/// >= 1; 0 < gamma <= 1.
struct MultiStepDecay : Schedule {
  explicit MultiStepDecay(const std::vector<int64_t>& milestones, double gamma = 0.1);
};

/// torch.optim.lr_scheduler.OneCycleLR with cosine annealing and two phases; the optimizer's rate
/// is max_lr. From 1 / div_factor up to 1 over pct_start of `total` updates, then down to
/// 1 / (div_factor * final_div_factor). Requires: total >= 2, 0 <= pct_start < 1, factors >= 1.
struct OneCycle : Schedule {
  explicit OneCycle(int64_t total, double pct_start = 0.3, double div_factor = 25.0,
                    double final_div_factor = 1e4);
};

/// Any function of the number of real updates (torch.optim.lr_scheduler.LambdaLR). The host calls
/// it before each window for the update to come; on a device, where it does not know yet whether
/// the last update was skipped, also for the one after it. So it must depend on nothing but its
/// argument, and return the same on every rank; that is compared before each update.
/// Requires: a function, whose results are finite and not negative.
struct ScheduleFunction : Schedule {
  explicit ScheduleFunction(std::function<double(int64_t updates)> factor);
};

}  // namespace lockstep
