#pragma once

#include <lockstep/amp/host_device.h>

#include <cmath>
#include <cstdint>

namespace lockstep {

/// The learning rate as a factor on each group's own rate: a function of the number of real
/// updates made so far (0 before the first), so a skipped update does not advance it.
///
/// Plain data, evaluated where the update runs, host or device. Make one of the types below; each
/// constructor throws Error naming the argument that is out of range. Threads and ranks: a value;
/// all ranks must use the same one.
struct Schedule {
  enum class Kind : int32_t { constant, warmup_linear, warmup_cosine, step, one_cycle };
  Kind kind = Kind::constant;
  int64_t warmup = 0;  // updates of linear warm-up
  int64_t total = 0;   // updates until the end; the period of Kind::step
  double peak = 0.0;   // Kind::one_cycle: the update, maybe between two, at which the factor is 1
  double first = 1.0;  // Kind::one_cycle: the factor at update 0
  double last = 1.0;   // the factor at `total`; what Kind::step multiplies by

  /// The factor for the update that follows `updates` real ones. After `total` it stays.
  LOCKSTEP_HOST_DEVICE float factor(int64_t updates) const;

 private:
  /// From `from` at progress 0 to `to` at 1, by half a cosine.
  LOCKSTEP_HOST_DEVICE static double cosine(double from, double to, double progress);
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

/// Multiplied by `gamma` every `every` updates (torch.optim.lr_scheduler.StepLR).
/// Requires: every >= 1, 0 < gamma <= 1.
struct StepDecay : Schedule {
  explicit StepDecay(int64_t every, double gamma = 0.1);
};

/// torch.optim.lr_scheduler.OneCycleLR with cosine annealing and two phases; the optimizer's rate
/// is max_lr. From 1 / div_factor up to 1 over pct_start of `total` updates, then down to
/// 1 / (div_factor * final_div_factor). Requires: total >= 2, 0 <= pct_start < 1, factors >= 1.
struct OneCycle : Schedule {
  explicit OneCycle(int64_t total, double pct_start = 0.3, double div_factor = 25.0,
                    double final_div_factor = 1e4);
};

LOCKSTEP_HOST_DEVICE double Schedule::cosine(double from, double to, double progress) {
#ifdef __CUDA_ARCH__
  const double wave = cospi(progress);  // the device's cos() has an array for large angles
#else
  constexpr double pi = 3.14159265358979323846;
  const double wave = cos(pi * progress);
#endif
  return to + (from - to) * 0.5 * (1.0 + wave);
}

LOCKSTEP_HOST_DEVICE float Schedule::factor(int64_t updates) const {
  const double done = static_cast<double>(updates < total ? updates : total);
  if (kind == Kind::constant) {
    return 1.0F;
  }
  if (kind == Kind::step) {
    return static_cast<float>(pow(last, static_cast<double>(updates / total)));
  }
  if (kind == Kind::one_cycle) {
    const double end = static_cast<double>(total - 1);
    const double at = done < end ? done : end;
    return static_cast<float>(at < peak ? cosine(first, 1.0, at / peak)
                                        : cosine(1.0, last, (at - peak) / (end - peak)));
  }
  if (updates < warmup) {
    return static_cast<float>((done + 1.0) / static_cast<double>(warmup));
  }
  const double progress =
      (done - static_cast<double>(warmup)) / static_cast<double>(total - warmup);
  return static_cast<float>(kind == Kind::warmup_linear ? 1.0 + (last - 1.0) * progress
                                                        : cosine(1.0, last, progress));
}

}  // namespace lockstep
