#pragma once

#include "start/run_options.h"

namespace lockstep::launcher {

/// Runs the job, or prints its command. Returns the launcher's exit code: run_job.cpp has the table
/// beside report_end().
int run_job(const RunOptions& options);

}  // namespace lockstep::launcher
