#pragma once

#include <string>

namespace lockstep::launcher {

/// Moves rank-*.log and failure.json of the previous attempt (of this run or an earlier one) to
/// DIR/attempt-N, with the first free N from 1 on. Throws std::runtime_error if they cannot be
/// moved. Does nothing if there are none.
void set_old_logs_aside(const std::string& log_dir);

}  // namespace lockstep::launcher
