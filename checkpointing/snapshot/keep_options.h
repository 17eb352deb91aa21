#pragma once

#include <lockstep/collectives/option_list.h>
#include <torch/arg.h>

#include <cstdint>
#include <optional>

namespace lockstep::snapshot {

/// Which snapshots are kept when a new one is complete; the others are removed. Only snapshots of
/// the same run are ever removed. Snapshots that cannot be read are left alone. Snapshots of the
/// same update count as one, and the last of them is the one that is kept.
struct KeepOptions {
  /// Keeps this many of the newest snapshots. Requires: >= 1.
  TORCH_ARG(int64_t, last) = 3;
  /// Also keeps every snapshot whose step is a multiple of this. 0: none. Requires: not negative.
  TORCH_ARG(int64_t, every) = 0;
  /// Also keeps this many snapshots with the best metric, among those saved with one. Requires: not
  /// negative.
  TORCH_ARG(int64_t, best) = 1;
  /// Whether the lower of two metrics is better. Unset: what the metric says, as those of
  /// evaluate() do (Metric::lower_is_better); for a plain number the lower one.
  TORCH_ARG(std::optional<bool>, lower_is_better);
};

}  // namespace lockstep::snapshot

namespace lockstep::detail {

LOCKSTEP_OPTION_LIST(snapshot::KeepOptions) {
  visit("last", options.last(), ">= 1");  // the newest cannot be removed
  visit("every", options.every(), ">= 0");
  visit("best", options.best(), ">= 0");
  visit("lower_is_better", options.lower_is_better());
}

}  // namespace lockstep::detail
