#pragma once

#include <torch/arg.h>

#include <cstdint>

namespace lockstep::snapshot {

/// Which snapshots are kept when a new one is complete; the others are removed. Only snapshots of
/// the same run are ever removed. Snapshots that cannot be read are left alone.
struct KeepOptions {
  /// Keeps this many of the newest snapshots. Requires: >= 1.
  TORCH_ARG(int64_t, last) = 3;
  /// Also keeps every snapshot whose step is a multiple of this. 0: none. Requires: not negative.
  TORCH_ARG(int64_t, every) = 0;
  /// Also keeps this many snapshots with the best metric, among those saved with one. Requires: not
  /// negative.
  TORCH_ARG(int64_t, best) = 1;
  TORCH_ARG(bool, lower_is_better) = true;
};

}  // namespace lockstep::snapshot
