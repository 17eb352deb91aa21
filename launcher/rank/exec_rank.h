#pragma once

#include <string>
#include <vector>

namespace lockstep::launcher {

/// `lockstep exec-rank -- program...` (the wrapper of a rank), which mpirun starts in place of the
/// program. Runs the program and sends its lines and the rank to the launcher over standard error.
/// Returns the program's exit code.
int exec_rank(const std::vector<std::string>& program);

}  // namespace lockstep::launcher
