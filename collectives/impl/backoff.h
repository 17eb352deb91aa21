#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <hwy/base.h>

#include <chrono>

namespace lockstep::detail {

/// How a rank waits for its peers: it spins for a few microseconds (not at all where ranks share
/// cores), then lets other threads run, and after 50 ms sleeps in growing steps of up to 1 ms.
class Backoff {
 public:
  explicit Backoff(bool crowded) : crowded_(crowded) {}

  void pause();
  /// Call after progress: the next pause is the shortest again.
  void reset() { pauses_ = 0; }
  /// True about once a millisecond: time to look for failed peers.
  bool is_time_to_check();
  /// How long it waits. The time in which this process was suspended does not count.
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  bool crowded_;
  int pauses_ = 0;
  int64_t sleep_us_ = 0;
  Clock::time_point start_;
  Clock::time_point now_;
  Clock::time_point next_check_;
};

}  // namespace lockstep::detail
