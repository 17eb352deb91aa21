#pragma once

#include <optional>
#include <string>
#include <vector>

#include "job_output.h"
#include "rank_table.h"

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
/// In this order: the rank that failed first of its own accord; a rank that saved and left; a
/// deadline; ranks that ended with 0 too early; ranks that were lost with their host; of ranks that
/// say that a peer is late or gone, the one that no other waits for; what ranks ended with that
/// were asked to stop.
std::optional<Cause> find_cause(const RankTable& ranks, const JobOutput& output, const JobEnd& end);

/// The cause with the last lines of its ranks. Ranks that printed the same lines, but for a
/// "rank 1: " before them, and ended with the same code are named together; so is a rank that was
/// asked to stop meanwhile, if these lines are a message of it and no signal ended the others.
std::string describe(const Cause& cause, const RankTable& ranks, const JobOutput& output);

/// The ranks of a world of `ranks` that this rank's message calls late or gone. Only messages of
/// lockstep count, "rank 0: ... rank 1 did not arrive" or "... has died or left": a program may
/// print what it likes about ranks.
std::vector<int> blamed_by(int rank, int ranks, const std::vector<std::string>& lines);

}  // namespace lockstep::launcher
