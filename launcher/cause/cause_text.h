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

/// Whether only mpirun may know why: a rank ended while it was making its runtime, by no signal,
/// and reported no error.
bool is_known_to_mpirun_alone(const Cause& cause, const RankTable& ranks);

}  // namespace lockstep::launcher
