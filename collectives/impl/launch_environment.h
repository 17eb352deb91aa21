#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

namespace lockstep::detail {

/// How this process was started, by its environment variables. MPI need not be initialised.
struct LaunchEnvironment {
  /// Whether an MPI launcher started this process: mpirun, srun with PMIx or PMI2, hydra, Flux,
  /// jsrun, or Cray PALS.
  bool by_launcher = false;
  /// The number of ranks that the launcher started; 0: unknown.
  int world_size = 0;
  /// The variable that gave the number.
  const char* size_variable = "";
};

/// Throws Error (code environment) for a task of srun that MPI cannot connect to the others, and
/// for a program that was started without a launcher in a job of several tasks (unless `lockstep
/// run -n 1` started it), which would run as a single rank by mistake.
LaunchEnvironment read_launch_environment();

/// Whether neither an MPI launcher nor `lockstep run` started this process.
bool is_started_by_hand();

}  // namespace lockstep::detail
