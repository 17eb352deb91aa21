#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cause/rank_table.h"

namespace lockstep::launcher {

/// Why a job ended.
struct Cause {
  std::string headline;     // "rank 1 was killed by SIGSEGV"
  std::vector<int> ranks;   // to blame
  int code = 0;             // the job's
  bool stopped = false;     // no rank failed: they were asked to stop, and ended with this code
  std::optional<int> said;  // the rank whose last lines tell more
};

/// What the launcher itself knows about an end.
struct JobEnd {
  int code = 0;                    // mpirun's; of one rank: the rank's
  std::string overdue;             // the deadline that passed, and whose; empty: none
  bool was_asked = false;          // somebody asked the job to stop
  bool mpirun_was_killed = false;  // by the launcher: no report of a rank is complete
};

/// The first cause of a job's end. Nothing if the job ended well, whatever ranks said on the way,
/// or if nothing is known.
///
/// In this order: the rank that failed first of its own accord, or whose error all have thrown; a
/// rank that saved and left; a deadline; ranks that ended with 0 too early; ranks that were lost
/// with their host; of ranks that waited in vain for others, the one that waited for nobody; what
/// ranks ended with that were asked to stop. Decided by life signs and ends of processes alone:
/// what ranks print counts for nothing.
std::optional<Cause> find_cause(const RankTable& ranks, const JobEnd& end);

}  // namespace lockstep::launcher
