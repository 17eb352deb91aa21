#pragma once

#include <optional>
#include <string>

namespace lockstep::launcher {

/// The allocation of a batch system for this job; mpirun finds its nodes by itself.
struct Allocation {
  std::string name;  // "Slurm job 17"
  int ranks = 0;     // tasks or slots of the job; 0: unknown
  int hosts = 1;
};

/// The allocation by environment variables of Slurm, PBS (also on a Cray with PALS), LSF or Flux.
/// Empty outside of a job, and in a step that has started this process as one of its ranks.
std::optional<Allocation> find_allocation();

/// The rank of this process, by the variables of Open MPI, PMIx, MPICH's hydra, Cray PALS, LSF's
/// jsrun and Flux, in this order; 0 if none is set.
int rank_in_environment();
/// The number of ranks, by the same variables; 0: unknown.
int ranks_in_environment();

}  // namespace lockstep::launcher
