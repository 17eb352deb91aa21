#pragma once

#include <string>

#include "cause/cause.h"
#include "cause/job_output.h"
#include "cause/rank_table.h"

namespace lockstep::launcher {

/// The cause with the last lines of its ranks, for the user. Ranks that said that they end because
/// of the same error are named together, also one that was asked to stop meanwhile, unless a signal
/// ended the others; so are ranks without such a sign that ended alike by themselves.
std::string describe(const Cause& cause, const RankTable& ranks, const JobOutput& output);

}  // namespace lockstep::launcher
