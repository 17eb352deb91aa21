#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/host_device.h>

#include <cmath>
#include <cstdint>

namespace lockstep::amp {

/// A Schedule as plain data, for kernels.
struct ScheduleFormula {
  enum class Kind : int32_t {
    constant,
    warmup_linear,
    warmup_cosine,
    step,
    one_cycle,
    multi_step,
    function,  // no formula: see PlannedFactors
  };
  static constexpr int32_t kMostMilestones = 16;

  Kind kind = Kind::constant;
  int32_t milestone_count = 0;
  int64_t warmup = 0;  // updates of linear warm-up
  int64_t total = 0;   // updates until the end; the period of Kind::step
  int64_t decay = 0;   // warm-up schedules: last updates of `total`, with falling factor
  double peak = 0.0;   // Kind::one_cycle: where the factor is 1, may lie between two updates
  double first = 1.0;  // Kind::one_cycle: the factor at update 0
  double last = 1.0;   // the factor at `total`; for step and multi_step: gamma
  int64_t milestones[kMostMilestones] = {};  // Kind::multi_step: ascending

  /// The factor for the update after `updates` updates (skips not counted). Warm-up schedules and
  /// one_cycle stay constant after `total`.
  LOCKSTEP_HOST_DEVICE float factor(int64_t updates) const;

 private:
  /// Half a cosine from `from` at progress 0 to `to` at progress 1.
  LOCKSTEP_HOST_DEVICE static double cosine(double from, double to, double progress);
};

/// Two factors of a ScheduleFunction, which only the host can call: for the update after `first`
/// updates, and for the one after that. With a device the host does not know yet which comes next.
struct PlannedFactors {
  int64_t first = 0;
  float factors[2] = {1.0F, 1.0F};
  LOCKSTEP_HOST_DEVICE float factor(int64_t updates) const {
    return factors[updates > first ? 1 : 0];
  }
};

LOCKSTEP_HOST_DEVICE double ScheduleFormula::cosine(double from, double to, double progress) {
#ifdef __CUDA_ARCH__
  const double wave = cospi(progress);  // CUDA's cos() needs a local array for large angles
#else
  constexpr double kPi = 3.14159265358979323846;
  const double wave = cos(kPi * progress);
#endif
  return to + (from - to) * 0.5 * (1.0 + wave);
}

LOCKSTEP_HOST_DEVICE float ScheduleFormula::factor(int64_t updates) const {
  const double done = static_cast<double>(updates < total ? updates : total);
  if (kind == Kind::constant || kind == Kind::function) {
    return 1.0F;
  }
  if (kind == Kind::step) {
    const int64_t periods = updates / total;
    return static_cast<float>(pow(last, static_cast<double>(periods)));
  }
  if (kind == Kind::multi_step) {
    int32_t passed = 0;
    while (passed < milestone_count && milestones[passed] <= updates) {
      ++passed;
    }
    return static_cast<float>(pow(last, static_cast<double>(passed)));
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
  const double fallen = done - static_cast<double>(total - decay);
  const double progress = fallen > 0.0 ? fallen / static_cast<double>(decay) : 0.0;
  return static_cast<float>(kind == Kind::warmup_linear ? 1.0 + (last - 1.0) * progress
                                                        : cosine(1.0, last, progress));
}

}  // namespace lockstep::amp
