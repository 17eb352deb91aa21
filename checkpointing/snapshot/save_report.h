#pragma once

#include <lockstep/collectives/error.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// How a save ended: the same on every rank.
struct SaveReport {
  int64_t step = 0;
  std::string path;    // of the finished snapshot
  uint64_t bytes = 0;  // of all tensor files, of all ranks
  /// Why there is no new snapshot. What was there before is unharmed.
  std::optional<std::string> error;
  /// The exit code of that error, of the first rank that failed; ok without one.
  ExitCode code = ExitCode::ok;
  /// What else went wrong: `latest` not updated, old snapshots not removed.
  std::vector<std::string> warnings;
};

}  // namespace lockstep::snapshot
