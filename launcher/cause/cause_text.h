#pragma once

#include <string>

#include "cause/cause.h"
#include "cause/job_output.h"
#include "cause/rank_table.h"

namespace lockstep::launcher {

/// The cause with the last lines of its ranks, for the user. Names ranks together that reported the
/// same error (also a rank that was asked to stop meanwhile, unless a signal ended the others), and
/// ranks without such a report that ended by themselves with the same code.
std::string describe(const Cause& cause, const RankTable& ranks, const JobOutput& output);

}  // namespace lockstep::launcher
