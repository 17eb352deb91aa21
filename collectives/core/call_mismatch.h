#pragma once

#include <lockstep/collectives/core/rank_sign.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/collective_call.h>
#include <lockstep/collectives/impl/collective_log.h>

#include <string>
#include <vector>

namespace lockstep::detail {

/// Throws Error with every rank's call unless all calls (in rank order) are equal. The text is the
/// same on every rank, except for the rank's own number. `job_ranks[k]`: what Error::ranks() calls
/// rank k; empty: k.
void throw_if_calls_differ(int rank, const CollectiveCall& own,
                           const std::vector<CollectiveCall>& calls,
                           const std::vector<int>& job_ranks = {});

/// Why a rank stops waiting for its peers.
struct PeerTrouble {
  int rank = 0;
  int size = 1;
  double seconds = 0.0;
  bool some_are_gone = false;
  std::string label;  // of the call, such as "bucket 4"; may be empty
  std::vector<RankSign> late;
  std::vector<int> silent;  // ranks of other nodes that gave no sign of life

  /// The cause that a rank reported when it left; without one, the ranks that are late or gone.
  std::string cause() const;
  /// The exit code of the error that such a rank had; peer_lost if it did not say.
  ExitCode code() const;
};

/// The message of the CommunicationError: the call, the cause and the last calls of the log.
std::string describe_trouble(const PeerTrouble& trouble, const CollectiveCall& call,
                             const CollectiveLog& log);

}  // namespace lockstep::detail
