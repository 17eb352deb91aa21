#pragma once

#include "start/run_options.h"

namespace lockstep::launcher {

/// Runs the job, or prints its command. Returns the launcher's exit code: that of the rank that
/// failed; 128 + n if signal n asked to stop and the ranks died of it; 2 for a program that cannot
/// be run; 3 without mpirun.
int run_job(const RunOptions& options);

}  // namespace lockstep::launcher
