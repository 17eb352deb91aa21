#pragma once

#include <lockstep/collectives/core/rank_sign.h>
#include <lockstep/collectives/impl/collective_call.h>
#include <lockstep/collectives/impl/collective_log.h>

#include <string>
#include <vector>

namespace lockstep::detail {

/// Throws Error when the ranks' calls (in rank order) are not all equal, with every rank's call.
/// Every rank that compares the same calls throws the same text but for its own number.
void throw_if_calls_differ(int rank, const CollectiveCall& own,
                           const std::vector<CollectiveCall>& calls);

/// Why a rank stopped waiting.
struct PeerTrouble {
  int rank = 0;
  int size = 1;
  double seconds = 0.0;
  bool some_are_gone = false;
  std::string label;  // of the call: "bucket 4"; or empty
  std::vector<RankSign> late;
  std::vector<int> silent;  // ranks of other nodes that gave no sign of life

  /// The first cause: what a rank found that left before this one, else who is late or gone.
  std::string cause() const;
};

/// The message of the CommunicationError: the call, the first cause, and the log's tail.
std::string describe_trouble(const PeerTrouble& trouble, const CollectiveCall& call,
                             const CollectiveLog& log);

}  // namespace lockstep::detail
