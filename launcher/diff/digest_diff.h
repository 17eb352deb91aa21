#pragma once

#include <iosfwd>
#include <string>

namespace lockstep::launcher {

/// `lockstep diff`: prints where two runs begin to differ, from the logs of
/// TrainerOptions::digest_log. A run is such a log, or a folder with a log named digests.jsonl.
/// Compares the updates that both logs have. Returns the exit code: 0 if they are equal, 1 if not,
/// 2 if a log cannot be read or they have no update in common.
int diff_runs(const std::string& a, const std::string& b, std::ostream& out, std::ostream& error);

}  // namespace lockstep::launcher
