#include <lockstep/amp/loss_scaler.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/step/impl/skip_watch.h>

#include <iostream>

namespace lockstep::detail {

void SkipWatch::warn(const amp::ScalerState& scaler, bool prints) {
  const int64_t skips = scaler.consecutive_skips;
  int64_t next = 10;
  while (next < skips) {
    next *= 2;
  }
  if (skips == next && warned_of_ != skips && prints) {
    std::cerr
        << "warning: " << skips
        << " updates in a row were skipped, since a gradient was not finite on some rank; the "
           "loss scale is "
        << scaler.scale
        << ". Trainer::diagnose_next_overflow() or TrainerOptions::diagnose_after_skips says "
           "where from; LossScalerOptions::max_consecutive_skips ends such a run"
        << std::endl;
  }
  warned_of_ = skips;
}

void SkipWatch::require_budget(const amp::ScalerState& scaler, const std::string& diagnosis,
                               const std::vector<int>& ranks) const {
  try {
    amp::check_skip_budget(options_, scaler);
  } catch (const Error& error) {
    if (diagnosis.empty()) {
      throw;
    }
    throw Error(
        c10::str(scaler.consecutive_skips, " updates in a row were skipped, the loss scale is ",
                 scaler.scale, ": ", diagnosis),
        error.code(), ranks);
  }
}

bool SkipWatch::wants_diagnosis(const amp::ScalerState& scaler) const {
  return diagnose_after_ > 0 ? scaler.consecutive_skips == diagnose_after_
                             : amp::next_skip_spends_budget(options_, scaler);
}

}  // namespace lockstep::detail
