#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/agreement.h>

namespace lockstep::detail {

/// The votes of one rank in one window. Every field is summed over ranks, so that votes of
/// different purpose have one form and ranks that took different paths still meet. A value and its
/// square are equal on all ranks if and only if the variance over ranks is 0.
struct Votes {
  double error = 0;       // ranks that failed
  double stop = 0;        // ranks asked to stop
  double phase_done = 0;  // ranks whose part in the present phase of a save is done (Saving)
  double data = 0;        // micro-batches with data in this window
  double weight = 0;      // their weights
  double sums = 0;        // ranks whose loss is a Loss::sum
  double means = 0;       // ranks whose loss is a mean
  double diagnose = 0;    // ranks that asked for a diagnosis of the next overflow
  double rates = 0;       // a digest of the learning rates, and its square: equal on all ranks
  double rates_squared = 0;
  double nan_loss = 0;  // ranks whose loss is NaN before the first update
  double window = 0;    // its number, which skipped updates advance too, and its square: equal
  double window_squared = 0;
  double digest = 0;  // of a part of the state, and its square: equal on all ranks (ReplicaCheck)
  double digest_squared = 0;
  double hidden = 0;  // ranks with a weight that is not its rounded master (WrittenWeights)
};

/// Votes in flight. Ranks: construction and collect() are collective; no rank waits between them,
/// and no other votes are in flight.
class PostedVotes {
 public:
  PostedVotes(const Agreement& agreement, const Votes& mine);
  /// Waits for the sums over all ranks; call once. Throws Error on every rank if ranks are at
  /// different windows.
  Votes collect();

 private:
  Agreement agreement_;
  double window_;
  at::Tensor sum_;
  Work work_;
};

/// Posts the votes and waits for the sums over all ranks. Collective.
Votes exchange(const Agreement& agreement, const Votes& mine);

}  // namespace lockstep::detail
