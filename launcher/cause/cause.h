#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cause/rank_table.h"

namespace lockstep::launcher {

/// Why a job ended.
struct Cause {
  std::string headline;         // "rank 1 was killed by SIGSEGV"
  std::vector<int> ranks;       // the ranks to blame
  bool is_found = false;        // by what ranks reported: not only the one that ended first
  int code = 0;                 // the job's
  bool ended_as_asked = false;  // no rank failed: it was asked to stop and ended with this code
  std::optional<int> said;      // the rank whose last lines to print
};

/// What the launcher itself knows about the end of a job.
struct JobEnd {
  int code = 0;                    // of mpirun, or of a rank if mpirun does not tell
  std::string overdue;             // which deadline has passed, and of whom; empty: none
  bool was_asked = false;          // somebody asked the job to stop
  bool mpirun_was_killed = false;  // by the launcher: reports of ranks may be missing
  std::vector<int> late = {};      // the ranks that have missed the deadline
};

/// The first cause of a job's end. Empty if the job ended well, whatever its ranks reported, or if
/// nothing is known.
///
/// Tried in this order: the first rank that failed by itself, or whose error all ranks have thrown
/// (if the error is about ranks, Error::ranks(), these are to blame; if several ranks have it as
/// their own, all of them); a rank that saved and left; a deadline; ranks that ended with 0 too
/// early; ranks that were lost with their host; the rank that others waited for in vain; the exit
/// code of ranks that were asked to stop. Uses life signs and exit codes only, never what ranks
/// print.
std::optional<Cause> find_cause(const RankTable& ranks, const JobEnd& end);

}  // namespace lockstep::launcher
