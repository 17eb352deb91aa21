#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rank/child_process.h"
#include "rank/rank_line.h"
#include "rank/stop_ladder.h"

namespace lockstep::launcher {

/// The rank, and whether there are others.
struct RankPlace {
  int rank = 0;
  bool has_peers = false;
};

/// Runs the program of one rank until it ends. Passes its lines (all available ones at a time), its
/// life signs and last its status to `on_lines`.
///
/// On SIGTERM, SIGINT, SIGHUP or SIGQUIT the program gets the signals of `ladder`; a program that
/// is already failing first gets a moment to report why. SIGUSR1 (the launcher's request to stop)
/// and SIGUSR2 (for the program, no request) are forwarded. Processes that the program leaves in
/// its process group are killed, and so is the program when this process dies. Returns the exit
/// code, 128 + n for signal n; peer_lost for a rank with peers that ends with 0 before its runtime.
int run_rank(RankPlace place, const std::vector<std::string>& program, StopLadder& ladder,
             const std::function<void(const std::vector<RankLine>&)>& on_lines);

}  // namespace lockstep::launcher
