#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/launch_environment.h>

#include <lockstep/collectives/impl/life_sign.h>

#include <cstdlib>

namespace lockstep::detail {
namespace {

const char* const tasks = "SLURM_STEP_NUM_TASKS";

bool is_set(const char* variable) {
  return std::getenv(variable) != nullptr;
}

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

/// Considers MPI launchers only.
LaunchEnvironment find_launcher() {
  // The order matters: under mpirun inside a Slurm job the SLURM_ variables describe mpirun's own
  // daemons, not the ranks.
  // Open MPI; MPICH, Intel MPI and Slurm's PMI2; MVAPICH; Flux; jsrun of LSF.
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                               "FLUX_JOB_SIZE", "JSM_NAMESPACE_SIZE"}) {
    if (is_set(variable)) {
      return {true, number_in(variable), variable};
    }
  }
  if (is_set("PMIX_RANK")) {
    return {true, number_in(tasks), tasks};
  }
  // PALS: Cray's launcher, also under Slurm and PBS. The world's size is MPI's.
  for (const char* variable : {"PMI_RANK", "PALS_RANKID"}) {
    if (is_set(variable)) {
      return {true, 0, ""};
    }
  }
  return {};
}

}  // namespace

bool is_started_by_hand() {
  return !find_launcher().by_launcher && !has_listener();
}

LaunchEnvironment read_launch_environment() {
  const LaunchEnvironment found = find_launcher();
  if (found.by_launcher) {
    return found;
  }
  LOCKSTEP_CHECK_CODE(number_in(tasks) <= 1 || !is_set("SLURM_PROCID"), ExitCode::environment,
                      "rank ", number_in("SLURM_PROCID"), ": srun started ", number_in(tasks),
                      " tasks, but without PMIx or PMI2, so MPI cannot join them; use srun "
                      "--mpi=pmix (srun --mpi=list shows what there is), or mpirun");
  const char* all_tasks = "SLURM_NTASKS";
  // `lockstep run -n 1` starts its rank without mpirun.
  LOCKSTEP_CHECK_CODE(number_in(all_tasks) <= 1 || is_set(tasks) || has_listener(),
                      ExitCode::environment, "this Slurm job has ", number_in(all_tasks),
                      " tasks (", all_tasks,
                      "), but nothing started the program on them, so it would be one rank; use "
                      "srun --mpi=pmix PROGRAM, or srun -n 1 PROGRAM or lockstep run -n 1 PROGRAM "
                      "if one rank is meant");
  return {};
}

}  // namespace lockstep::detail
