#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::detail {

/// What a waiting rank knows about another rank.
struct RankSign {
  int rank = 0;
  uint64_t last_call = 0;  // sequence number of the last call that it entered
  bool gone = false;       // its process is dead, or it has closed the communicator
  bool stopped = false;    // by a signal or a debugger
  double seconds = 0.0;    // since its present activity began
  std::string activity;    // "forward of micro-batch 2"; empty: unknown
  std::string cause;       // why it left; empty if it did not say
  int code = 0;            // the exit code of the error because of which it left; 0: unknown
};

/// The signs as a text that ranks send to other nodes, and back.
std::string render_signs(const std::vector<RankSign>& signs);
std::vector<RankSign> parse_signs(const std::string& text);

/// "rank 3 did not arrive (its last call was #811); in forward of micro-batch 2 for 41.0 s".
std::string describe_sign(const RankSign& sign);

}  // namespace lockstep::detail
