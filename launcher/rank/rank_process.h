#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rank/child_process.h"
#include "rank/rank_line.h"
#include "rank/stop_ladder.h"

namespace lockstep::launcher {

/// Which rank, and whether it is one of several.
struct RankPlace {
  int rank = 0;
  bool has_peers = false;
};

/// Runs the program of one rank until it ends and hands on the lines it prints, as many as there
/// are at a time, its life signs, then its status.
///
/// `ladder` says how the program is asked to stop when this process gets SIGTERM, SIGINT, SIGHUP or
/// SIGQUIT. SIGUSR1, by which the launcher asks, is passed on; so is SIGUSR2, which belongs to the
/// program and asks for nothing. A program that is failing already gets a moment to say why. What
/// the program leaves behind in its process group is killed; the program itself is, when this
/// process dies. Returns its exit code, 128 + n for signal n; peer_lost for a rank with peers that
/// ends with 0 before its runtime has ended.
int run_rank(RankPlace place, const std::vector<std::string>& program, StopLadder& ladder,
             const std::function<void(const std::vector<RankLine>&)>& on_lines);

}  // namespace lockstep::launcher
