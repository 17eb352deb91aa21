#pragma once

#include <string>
#include <vector>

namespace lockstep::launcher {

/// `lockstep exec-rank -- program...` (the wrapper of a rank), which mpirun starts in place of the
/// program. Runs the program of one rank until it ends. Sends its lines (all available ones at a
/// time), its life signs and last its status to the launcher over standard error.
///
/// On SIGTERM, SIGINT, SIGHUP, SIGQUIT or SIGALRM (the launcher's request to end, which Open MPI 5
/// forwards) the program gets SIGTERM, later SIGKILL; a program that is already failing first gets
/// a moment to report why. A program that says it is stuck
/// (LifeSign::stuck) gets the same signals 5 s later, if it has not ended. SIGUSR1 (the launcher's
/// request to stop) is handed over once it would not end a program that has a runtime or has just
/// started. SIGUSR2 (for the program, no request) is forwarded. Processes that the
/// program leaves in its process group are killed, and so is the program when this process dies.
/// Returns the exit code, 128 + n for signal n; peer_lost for a rank with peers that ends with 0
/// before its runtime.
int exec_rank(const std::vector<std::string>& program);

}  // namespace lockstep::launcher
