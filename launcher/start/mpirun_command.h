#pragma once

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
};

/// The command for these options: the program itself for one local rank, else mpirun with the
/// wrapper. `version`: the output of `mpirun --version`; only Open MPI gets its own options.
JobCommand job_command(const RunOptions& options, const std::string& version);

/// True if `version` is Open MPI's.
bool is_open_mpi(const std::string& version);

}  // namespace lockstep::launcher
