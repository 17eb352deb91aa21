#pragma once

#include <string>

namespace lockstep::launcher {

/// Makes room for the logs of a new attempt: rank-*.log and failure.json of the attempt before, in
/// this run or an earlier one, move to DIR/attempt-N, N the first that is free from 1 on. Throws
/// std::runtime_error when they cannot be moved. Does nothing where there are none.
void set_old_logs_aside(const std::string& log_dir);

}  // namespace lockstep::launcher
