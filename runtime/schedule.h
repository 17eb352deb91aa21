#pragma once

#include <lockstep/amp/host_device.h>

#include <cstdint>

namespace lockstep {

/// The learning rate as a factor on each group's own rate: a function of the number of real
/// updates made so far (0 before the first), so a skipped update does not advance it. Plain data,
/// evaluated on the device that updates.
struct Schedule {
  enum class Kind : int32_t { constant, warmup_linear, warmup_cosine, step, one_cycle };
  Kind kind = Kind::constant;
  int64_t warmup = 0;
  int64_t total = 0;
  float a = 1.0F;  // meaning depends on the kind
  float b = 0.0F;

  LOCKSTEP_HOST_DEVICE float factor(int64_t updates) const;
};

/// Always 1.
struct Constant : Schedule {
  Constant() = default;
};

/// Linear from 0 to 1 over `warmup` updates (update k of them uses (k + 1) / warmup), then linear
/// down to `floor` at `total`.
struct WarmupLinear : Schedule {
  WarmupLinear(int64_t warmup, int64_t total, double floor = 0.0);
};

/// Linear warm-up as above, then half a cosine down to `floor` at `total` (Loshchilov and Hutter,
/// 2017).
struct WarmupCosine : Schedule {
  WarmupCosine(int64_t warmup, int64_t total, double floor = 0.0);
};

/// Multiplied by `gamma` every `every` updates (torch.optim.lr_scheduler.StepLR).
struct StepDecay : Schedule {
  StepDecay(int64_t every, double gamma = 0.1);
};

/// torch.optim.lr_scheduler.OneCycleLR with cosine annealing, two phases; the optimizer's rate is
/// max_lr. From 1 / div_factor up to 1 over pct_start of `total`, then down to
/// 1 / (div_factor * final_div_factor).
struct OneCycle : Schedule {
  OneCycle(int64_t total, double pct_start = 0.3, double div_factor = 25.0,
           double final_div_factor = 1e4);
};

}  // namespace lockstep
