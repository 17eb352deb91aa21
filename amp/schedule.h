#pragma once

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/amp/impl/schedule_formula.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// A learning-rate schedule: a factor on each group's own rate, as a function of the number of real
/// updates made so far (0 before the first). A skipped update does not advance it.
///
/// Use one of the types below. Each constructor throws Error that names an argument out of range.
/// All but ScheduleFunction are formulas that are evaluated where the update runs, on the host or
/// the device. Threads and ranks: a plain value; all ranks must use the same one.
struct Schedule : amp::ScheduleFormula {
  std::shared_ptr<const std::function<double(int64_t)>> function;  // set for Kind::function only

  /// The factor for the update that follows `updates` real ones. Throws Error if a ScheduleFunction
  /// returns a negative, infinite or NaN number.
  float factor(int64_t updates) const;
  /// "WarmupCosine 500 20000 0". Equal formulas have equal descriptions.
  std::string describe() const;
};

/// Always 1.
struct Constant : Schedule {
  Constant() = default;
};

/// Linear from 0 to 1 over `warmup` updates (update k of these, from 0, uses (k + 1) / warmup),
/// then linear down to `floor` at `total`. Requires: 0 <= warmup < total, 0 <= floor <= 1.
struct WarmupLinear : Schedule {
  WarmupLinear(int64_t warmup, int64_t total, double floor = 0.0);
};

/// Linear warm-up as in WarmupLinear, then half a cosine down to `floor` at `total` (Loshchilov and
/// Hutter, 2017). Requires: 0 <= warmup < total, 0 <= floor <= 1.
struct WarmupCosine : Schedule {
  WarmupCosine(int64_t warmup, int64_t total, double floor = 0.0);
};

/// Warm-up, stable, decay: linear warm-up as in WarmupLinear, then 1, then linear over the last
/// `decay` updates down to `floor` at `total`. Requires: 0 <= warmup, 1 <= decay, warmup + decay <=
/// total, 0 <= floor <= 1.
struct WarmupStableDecay : Schedule {
  WarmupStableDecay(int64_t warmup, int64_t decay, int64_t total, double floor = 0.0);
};

/// Multiplies the factor by `gamma` every `every` updates (torch.optim.lr_scheduler.StepLR).
/// Requires: every >= 1, 0 < gamma <= 1.
struct StepDecay : Schedule {
  explicit StepDecay(int64_t every, double gamma = 0.1);
};

/// Multiplies the factor by `gamma` at each of `milestones`, which are numbers of updates
/// (torch.optim.lr_scheduler.MultiStepLR). Requires: 1 to 16 milestones in ascending order, all >=
/// 1; 0 < gamma <= 1.
struct MultiStepDecay : Schedule {
  explicit MultiStepDecay(const std::vector<int64_t>& milestones, double gamma = 0.1);
};

/// torch.optim.lr_scheduler.OneCycleLR with cosine annealing and two phases; the optimizer's rate
/// is max_lr. The factor rises from 1 / div_factor to 1 over pct_start of the `total` updates, then
/// falls to 1 / (div_factor * final_div_factor). Requires: total >= 2, 0 <= pct_start < 1, factors
/// >= 1.
struct OneCycle : Schedule {
  explicit OneCycle(int64_t total, double pct_start = 0.3, double div_factor = 25.0,
                    double final_div_factor = 1e4);
};

/// Any function of the number of real updates (torch.optim.lr_scheduler.LambdaLR). The host calls
/// it before each window, for the coming update. With a device it also calls it for the update
/// after that, because the host does not know yet whether the last update was skipped. So the
/// function must depend on its argument only, and return the same on every rank; ranks compare the
/// results before each update.
/// Requires: a function whose results are finite and not negative.
struct ScheduleFunction : Schedule {
  explicit ScheduleFunction(std::function<double(int64_t updates)> factor);
};

}  // namespace lockstep
