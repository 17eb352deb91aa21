#pragma once

#include <functional>
#include <string>
#include <vector>

#include "child_process.h"
#include "rank_line.h"
#include "stop_ladder.h"

namespace lockstep::launcher {

/// Runs the program of one rank until it ends and hands on the lines it prints, as many as there
/// are at a time, then its status.
///
/// `ladder` says how the program is asked to stop when this process gets SIGTERM, SIGINT, SIGHUP or
/// SIGQUIT; SIGUSR1 and SIGUSR2 are passed on. What the program leaves behind in its process group
/// is killed. Returns its exit code, 128 + n for signal n.
int run_rank(int rank, const std::vector<std::string>& program, StopLadder& ladder,
             const std::function<void(const std::vector<RankLine>&)>& on_lines);

}  // namespace lockstep::launcher
