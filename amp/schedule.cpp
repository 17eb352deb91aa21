#include <lockstep/amp/schedule.h>
#include <lockstep/collectives/error.h>

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
  schedule.last = floor;
  return schedule;
}

}  // namespace

WarmupLinear::WarmupLinear(int64_t warmup, int64_t total, double floor)
    : Schedule(after_warmup("WarmupLinear", Kind::warmup_linear, warmup, total, floor)) {}

WarmupCosine::WarmupCosine(int64_t warmup, int64_t total, double floor)
    : Schedule(after_warmup("WarmupCosine", Kind::warmup_cosine, warmup, total, floor)) {}

StepDecay::StepDecay(int64_t every, double gamma) {
  LOCKSTEP_CHECK(every >= 1, "StepDecay: every is ", every, ", expected 1 or more updates");
  LOCKSTEP_CHECK(gamma > 0.0 && gamma <= 1.0, "StepDecay: gamma is ", gamma,
                 ", expected a factor above 0 and at most 1");
  kind = Kind::step;
  total = every;
  last = gamma;
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
