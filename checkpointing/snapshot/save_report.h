#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

enum class ExitCode : int;

}  // namespace lockstep

namespace lockstep::snapshot {

/// The outcome of a save: the same on every rank.
struct SaveReport {
  int64_t step = 0;
  std::string path;    // path of the complete snapshot
  uint64_t bytes = 0;  // total of the tensor files of all ranks
  /// Why there is no new snapshot; empty if there is one. Earlier snapshots are unharmed.
  std::optional<std::string> error;
  /// The exit code of the error of the first rank that failed; ok without an error.
  ExitCode code{};
  std::vector<int> ranks;  // those that failed, ascending
  /// Other problems: `latest` was not updated, old snapshots were not removed.
  std::vector<std::string> warnings;
};

}  // namespace lockstep::snapshot
