#pragma once

#include "start/run_options.h"

namespace lockstep::launcher {

/// Runs the job, or prints its command, and returns the launcher's exit code: the failing rank's,
/// 128 + n when signal n asked us to stop and the ranks obeyed by dying, 2 for a program that
/// cannot be run, 3 without mpirun.
int run_job(const RunOptions& options);

}  // namespace lockstep::launcher
