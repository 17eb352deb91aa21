#pragma once

#include <string>
#include <vector>

namespace lockstep::launcher {

/// `lockstep exec-rank -- program...`: what mpirun starts in place of the program. Runs it and
/// sends each line of it, marked with the rank, to the launcher over standard error.
/// Returns the program's exit code.
int exec_rank(const std::vector<std::string>& program);

}  // namespace lockstep::launcher
