#include <c10/util/ArrayRef.h>
#include <lockstep/amp/schedule.h>
#include <lockstep/collectives/check.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

namespace lockstep {
namespace {

Schedule after_warmup(const char* name, Schedule::Kind kind, int64_t warmup, int64_t total,
                      double floor) {
  LOCKSTEP_CHECK(warmup >= 0, name, ": warmup is ", warmup, ", expected 0 or more updates");
  LOCKSTEP_CHECK(total > warmup, name, ": total is ", total, ", expected more than the ", warmup,
                 " updates of warmup");
  LOCKSTEP_CHECK(floor >= 0.0 && floor <= 1.0, name, ": floor is ", floor,
                 ", expected a factor from 0 to 1");
  Schedule schedule;
  schedule.kind = kind;
  schedule.warmup = warmup;
  schedule.total = total;
  schedule.decay = total - warmup;
  schedule.last = floor;
  return schedule;
}

void check_gamma(const char* name, double gamma) {
  LOCKSTEP_CHECK(gamma > 0.0 && gamma <= 1.0, name, ": gamma is ", gamma,
                 ", expected a factor above 0 and at most 1");
}

const char* name_of(const Schedule& schedule) {
  using Kind = Schedule::Kind;
  switch (schedule.kind) {
    case Kind::constant:
      return "Constant";
    case Kind::warmup_linear:
      return schedule.decay == schedule.total - schedule.warmup ? "WarmupLinear"
                                                                : "WarmupStableDecay";
    case Kind::warmup_cosine:
      return "WarmupCosine";
    case Kind::step:
      return "StepDecay";
    case Kind::one_cycle:
      return "OneCycle";
    case Kind::multi_step:
      return "MultiStepDecay";
    case Kind::function:
      break;
  }
  return "ScheduleFunction";
}

}  // namespace

float Schedule::factor(int64_t updates) const {
  if (kind != Kind::function) {
    return ScheduleFormula::factor(updates);
  }
  const double value = (*function)(updates);
  const auto factor = static_cast<float>(value);
  LOCKSTEP_CHECK(std::isfinite(factor) && factor >= 0.0F, "ScheduleFunction: the factor after ",
                 updates, " updates is ", value, ", expected one that is finite and not negative");
  return factor;
}

std::string Schedule::describe() const {
  std::ostringstream out;
  out.precision(17);
  out << name_of(*this);
  if (kind == Kind::warmup_linear || kind == Kind::warmup_cosine) {
    out << ' ' << warmup << ' ';
    if (decay != total - warmup) {
      out << decay << ' ';
    }
    out << total << ' ' << last;
  } else if (kind == Kind::step) {
    out << ' ' << total << ' ' << last;
  } else if (kind == Kind::one_cycle) {
    out << ' ' << total << ' ' << peak << ' ' << first << ' ' << last;
  } else if (kind == Kind::multi_step) {
    out << ' ' << c10::ArrayRef<int64_t>(milestones, static_cast<size_t>(milestone_count)) << ' '
        << last;
  }
  return out.str();
}

WarmupLinear::WarmupLinear(int64_t warmup, int64_t total, double floor)
    : Schedule(after_warmup("WarmupLinear", Kind::warmup_linear, warmup, total, floor)) {}

WarmupCosine::WarmupCosine(int64_t warmup, int64_t total, double floor)
    : Schedule(after_warmup("WarmupCosine", Kind::warmup_cosine, warmup, total, floor)) {}

StepDecay::StepDecay(int64_t every, double gamma) {
  LOCKSTEP_CHECK(every >= 1, "StepDecay: every is ", every, ", expected 1 or more updates");
  check_gamma("StepDecay", gamma);
  kind = Kind::step;
  total = every;
  last = gamma;
}

WarmupStableDecay::WarmupStableDecay(int64_t warmup_updates, int64_t decay_updates,
                                     int64_t total_updates, double floor)
    : Schedule(after_warmup("WarmupStableDecay", Kind::warmup_linear, warmup_updates, total_updates,
                            floor)) {
  LOCKSTEP_CHECK(decay_updates >= 1 && decay_updates <= total_updates - warmup_updates,
                 "WarmupStableDecay: decay is ", decay_updates, ", expected 1 to the ",
                 total_updates - warmup_updates, " updates after the warm-up");
  decay = decay_updates;
}

MultiStepDecay::MultiStepDecay(const std::vector<int64_t>& at, double gamma) {
  const auto count = static_cast<int64_t>(at.size());
  LOCKSTEP_CHECK(count >= 1 && count <= kMostMilestones, "MultiStepDecay: milestones is a list of ",
                 count, ", expected 1 to ", kMostMilestones, "; for more use ScheduleFunction");
  LOCKSTEP_CHECK(at.front() >= 1 && std::is_sorted(at.begin(), at.end()),
                 "MultiStepDecay: milestones is ", c10::ArrayRef<int64_t>(at),
                 ", expected ascending numbers of 1 or more updates");
  check_gamma("MultiStepDecay", gamma);
  kind = Kind::multi_step;
  last = gamma;
  milestone_count = static_cast<int32_t>(count);
  std::copy(at.begin(), at.end(), milestones);
}

ScheduleFunction::ScheduleFunction(std::function<double(int64_t)> of_updates) {
  LOCKSTEP_CHECK(of_updates != nullptr, "ScheduleFunction: factor is empty, expected a function");
  kind = Kind::function;
  function = std::make_shared<const std::function<double(int64_t)>>(std::move(of_updates));
}

OneCycle::OneCycle(int64_t total_updates, double pct_start, double div_factor,
                   double final_div_factor) {
  LOCKSTEP_CHECK(total_updates >= 2, "OneCycle: total is ", total_updates,
                 ", expected 2 or more updates");
  LOCKSTEP_CHECK(pct_start >= 0.0 && pct_start < 1.0, "OneCycle: pct_start is ", pct_start,
                 ", expected a share from 0 to less than 1");
  LOCKSTEP_CHECK(div_factor >= 1.0 && std::isfinite(div_factor), "OneCycle: div_factor is ",
                 div_factor, ", expected 1 or more");
  LOCKSTEP_CHECK(final_div_factor >= 1.0 && std::isfinite(final_div_factor),
                 "OneCycle: final_div_factor is ", final_div_factor, ", expected 1 or more");
  kind = Kind::one_cycle;
  total = total_updates;
  peak = pct_start * static_cast<double>(total_updates) - 1.0;
  first = 1.0 / div_factor;
  last = first / final_div_factor;
}

}  // namespace lockstep
