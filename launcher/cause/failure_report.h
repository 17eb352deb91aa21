#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cause/cause.h"
#include "cause/job_output.h"

namespace lockstep::launcher {

/// What is known of an attempt that failed, for programs that read it.
struct FailureReport {
  int attempt = 0;  // 0 for the first
  Cause cause;
  const RankTable* ranks = nullptr;
  const JobOutput* output = nullptr;
  std::vector<std::string> command;
  bool is_restarted = false;

  /// JSON: "attempt", "code", "cause", "ranks" to blame, "rank" (the first of them), "host" and
  /// "signal" of that rank, "last_lines", "snapshot" to resume from, "command", "time",
  /// "restarted". What is not known is null.
  std::string render() const;
};

/// Writes the report to the file, whole or not at all; says so on standard error if that fails.
void write_report(const std::string& path, const FailureReport& report);

}  // namespace lockstep::launcher
