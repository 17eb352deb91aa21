#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

namespace lockstep::detail {

/// What the environment says about how this process was started. Reads only; MPI need not be up.
struct LaunchEnvironment {
  /// Whether an MPI launcher started this process: mpirun, srun with PMIx or PMI2, hydra, Flux,
  /// jsrun, or Cray PALS.
  bool by_launcher = false;
  /// The number of ranks the launcher started, or 0 where it does not say.
  int world_size = 0;
  /// The variable that said so.
  const char* size_variable = "";
};

/// Throws Error (code environment) for a task of srun that MPI cannot join to the others, and for a
/// program that a job of several tasks starts by itself, which is one rank by mistake. A rank that
/// `lockstep run -n 1` starts in such a job is one on purpose.
LaunchEnvironment read_launch_environment();

/// Whether neither an MPI launcher nor `lockstep run` started this process.
bool is_started_by_hand();

}  // namespace lockstep::detail
