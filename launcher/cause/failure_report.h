#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cause/cause.h"
#include "cause/job_output.h"

namespace lockstep::launcher {

/// The report about a failed attempt, for other programs.
struct FailureReport {
  int attempt = 0;  // 0 for the first
  Cause cause;
  const RankTable* ranks = nullptr;
  const JobOutput* output = nullptr;
  std::vector<std::string> command;
  bool is_restarted = false;

  /// JSON: "attempt", "code", "cause", "ranks" to blame, "rank" (the first of them), "host" and
  /// "signal" of that rank, "last_lines", "snapshot" to resume from, "command", "time",
  /// "restarted". Unknown values are null.
  std::string render() const;
};

/// Writes the report to the file atomically. A failure is reported on standard error.
void write_report(const std::string& path, const FailureReport& report);

}  // namespace lockstep::launcher
