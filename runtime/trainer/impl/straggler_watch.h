#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// How one rank spent its time over some updates, in seconds.
struct RankTimes {
  double busy = 0;     // until the all-reduce: data, forward, backward, the program
  double waiting = 0;  // for the other ranks
};

/// The rank that needed longest to reach the all-reduce.
struct SlowestRank {
  int rank = 0;
  double ratio = 1;  // its time divided by that of the median rank
};

/// `times`: of all ranks, in rank order. Of ranks that needed equally long, the first. None for one
/// rank, or if the median rank needed no time.
std::optional<SlowestRank> slowest_of(const std::vector<RankTimes>& times);

/// "rank 3 needs 2.4x the median time ...": the rank that the others wait for. Empty if no rank
/// needs 1.5 times the median and 5 ms an update more, or if another rank waits less.
/// `times`: of all ranks, in rank order, over `updates` updates.
std::string describe_straggler(const std::vector<RankTimes>& times, int64_t updates);

/// Compares once every 100 updates how long the ranks need to reach the all-reduce. Only for ranks
/// that compute on the host: the host's clock does not show when a device works.
class StragglerWatch {
 public:
  static constexpr int64_t kUpdates = 100;

  /// Adds one update of this rank. Local.
  void add(RankTimes times);
  bool is_due() const { return updates_ >= kUpdates; }
  /// Compares what was added since the last call. Returns the description, the same on every rank,
  /// if it is new: another rank than before. Collective.
  std::string compare(Communicator hosts);
  /// How many comparisons there were, and what the last one found. The same on every rank; local.
  int64_t comparisons() const { return comparisons_; }
  const std::optional<SlowestRank>& slowest() const { return slowest_; }

 private:
  RankTimes sum_;
  int64_t updates_ = 0;
  std::ptrdiff_t named_ = -1;  // the rank that was named last; -1: none
  int64_t comparisons_ = 0;
  std::optional<SlowestRank> slowest_;
};

}  // namespace lockstep::detail
