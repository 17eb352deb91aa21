#pragma once

#include <lockstep/collectives/core/collective_call.h>
#include <lockstep/collectives/core/collective_log.h>

#include <string>
#include <vector>

namespace lockstep::detail {

/// Throws Error when the ranks' calls (in rank order) are not all equal, with every rank's call.
/// Every rank that compares the same calls throws the same text but for its own number.
void throw_if_calls_differ(int rank, const CollectiveCall& own,
                           const std::vector<CollectiveCall>& calls);

/// Why a rank stopped waiting.
struct PeerTrouble {
  struct Late {
    int rank;
    bool gone;
    uint64_t last_call;
  };
  int rank = 0;
  int size = 1;
  double seconds = 0.0;
  bool some_are_gone = false;
  bool others_on_node_arrived = false;
  std::vector<Late> late;
};

/// The message of the CommunicationError: who is late or gone, at what, and the log's tail.
std::string describe_trouble(const PeerTrouble& trouble, const CollectiveCall& call,
                             const CollectiveLog& log);

}  // namespace lockstep::detail
