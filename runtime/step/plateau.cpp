#include <lockstep/runtime/step/impl/plateau.h>

#include <algorithm>
#include <cmath>

namespace lockstep::detail {

bool Plateau::step(const MetricValue& metric, int64_t update, LearningRates& rates) {
  const bool prefers_lower = metric.prefers_lower(
      rule_.mode() ? std::make_optional(*rule_.mode() == ReduceOnPlateau::Mode::min) : std::nullopt,
      "ReduceOnPlateau::mode");
  const bool again = update_ == update && loaded_;
  loaded_ = false;
  if (again) {
    return false;
  }
  update_ = update;
  if (std::isinf(best_)) {
    best_ = std::copysign(best_, prefers_lower ? 1.0 : -1.0);
  }
  if (improves(metric.value, prefers_lower)) {
    best_ = metric.value;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooling_ > 0) {
    --cooling_;
    bad_ = 0;
  }
  if (bad_ <= rule_.patience()) {
    return false;
  }
  cooling_ = rule_.cooldown();
  bad_ = 0;
  return lower(rates);
}

bool Plateau::improves(double metric, bool prefers_lower) const {
  const double by = rule_.threshold();
  const bool rel = rule_.threshold_mode() == ReduceOnPlateau::Threshold::rel;
  if (prefers_lower) {
    return metric < (rel ? best_ * (1.0 - by) : best_ - by);
  }
  return metric > (rel ? best_ * (1.0 + by) : best_ + by);
}

bool Plateau::lower(LearningRates& rates) const {
  bool lowered = false;
  for (int group = 0; group < rates.groups(); ++group) {
    const double lower = std::max(rates.of(group) * rule_.factor(), rule_.min_lr());
    if (rates.of(group) - lower > rule_.eps()) {
      rates.set(lower, group);
      lowered = true;
    }
  }
  return lowered;
}

void Plateau::visit_state(StateArchive& archive) {
  if (!archive.saving() && !archive.has("plateau.best")) {
    return;
  }
  archive.real("plateau.best", best_);
  archive.number("plateau.bad", bad_);
  archive.number("plateau.cooling", cooling_);
  if (archive.saving() || archive.has("plateau.update")) {  // not in old snapshots
    archive.number("plateau.update", update_);
    loaded_ = archive.loading() || loaded_;
  }
}

void Plateau::pass_over(StateArchive& archive) {
  if (!archive.saving()) {
    Plateau(ReduceOnPlateau()).visit_state(archive);
  }
}

}  // namespace lockstep::detail
