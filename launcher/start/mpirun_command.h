#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "start/run_options.h"

namespace lockstep::launcher {

/// The command that starts a job. `notes`: a line for each decision made for the user.
struct JobCommand {
  int ranks = 1;
  std::vector<std::string> arguments;
  std::vector<std::string> notes;
  bool uses_mpirun() const { return ranks > 1 || remote; }
  bool remote = false;
  /// Open MPI 5 ends the other ranks 0.25 s after a failure and drops what they print meanwhile; it
  /// is told to let them be. Then it returns 0, and the launcher ends them.
  bool launcher_ends_ranks = false;
  /// What makes the wrappers of the ranks end them: SIGALRM if mpirun forwards it and goes on, else
  /// SIGTERM, which ends mpirun with its ranks.
  int end_signal() const { return launcher_ends_ranks ? SIGALRM : SIGTERM; }
};

/// The command for these options: the program itself for one local rank, else mpirun with the
/// wrapper. `version`: the output of `mpirun --version`; only Open MPI gets its own options.
JobCommand job_command(const RunOptions& options, const std::string& version);

/// Open MPI's major version by the output of `mpirun --version`; 0: another MPI's.
int open_mpi_version(const std::string& version);

}  // namespace lockstep::launcher
