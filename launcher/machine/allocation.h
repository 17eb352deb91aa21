#pragma once

#include <optional>
#include <string>

namespace lockstep::launcher {

/// The nodes that a batch system has given to this job; mpirun finds them by itself.
struct Allocation {
  std::string name;  // "Slurm job 17"
  int ranks = 0;     // as many as the job has tasks or slots; 0: it does not say
  int hosts = 1;
};

/// What the environment says: Slurm, PBS (also on a Cray with PALS), LSF or Flux. Nothing outside
/// of a job, and inside of a step that has started this process as one of its ranks.
std::optional<Allocation> find_allocation();

/// The rank of this process, by the variables of Open MPI, PMIx, MPICH's hydra, Cray PALS, LSF's
/// jsrun and Flux, in this order; 0 if none is set.
int rank_in_environment();
/// The number of ranks by the same launchers; 0: unknown.
int ranks_in_environment();

}  // namespace lockstep::launcher
