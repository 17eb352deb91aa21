#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/scaler_state.h>
#include <lockstep/amp/loss_scaler_options.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Reacts to updates that were skipped in a row: a warning, a diagnosis, the end of the run.
/// Ranks: local; all ranks read the same state of the scaler, so all come to the same result.
class SkipWatch {
 public:
  /// `diagnose_after`: TrainerOptions::diagnose_after_skips().
  SkipWatch(amp::LossScalerOptions options, int64_t diagnose_after)
      : options_(options), diagnose_after_(diagnose_after) {}

  /// Warns on stderr when 10, 20, 40, ... updates in a row were skipped, if `prints`.
  void warn(const amp::ScalerState& scaler, bool prints);
  /// Throws Error (exit code non_finite) with `diagnosis`, and the ranks that it blames, once the
  /// budget of skips is spent.
  void require_budget(const amp::ScalerState& scaler, const std::string& diagnosis,
                      const std::vector<int>& ranks) const;
  /// True if the next overflow should be diagnosed.
  bool wants_diagnosis(const amp::ScalerState& scaler) const;

 private:
  amp::LossScalerOptions options_;
  int64_t diagnose_after_;
  int64_t warned_of_ = 0;
};

}  // namespace lockstep::detail
