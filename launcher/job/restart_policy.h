#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace lockstep::launcher {

/// Decides whether and when a failed job is started again.
class RestartPolicy {
 public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::seconds;
  /// `deadline`: no attempt begins after it; empty: no limit.
  RestartPolicy(int max_restarts, Seconds min_uptime,
                std::optional<Clock::time_point> deadline = std::nullopt)
      : max_restarts_(max_restarts), min_uptime_(min_uptime), deadline_(deadline) {}

  struct Decision {
    bool restarts = false;
    Seconds wait{0};
    std::string reason;  // why not; empty if restarts were not requested
  };
  /// After an attempt that ended with `code`. `has_progress`: it saved a new snapshot.
  ///
  /// A resumed run continues bit for bit, so there is no restart after failures that would happen
  /// again: wrong usage (2), environment (3), data (10), snapshots (11), replicas that differ (21:
  /// look at the named rank's host first), the skip budget (22), too little memory (23), a
  /// program that cannot be run (126, 127). A preempted job (75) is left to its scheduler. Two
  /// attempts in a row that were shorter than the minimum and saved nothing also end the restarts,
  /// unless `changes_world(is_short)`, which is called last, says that the next attempt has other
  /// ranks.
  Decision after(int code, Seconds uptime, bool has_progress,
                 const std::function<bool(bool is_short)>& changes_world = {});

 private:
  int max_restarts_;
  Seconds min_uptime_;
  std::optional<Clock::time_point> deadline_;
  int restarts_ = 0;
  int short_attempts_ = 0;  // in a row
};

/// Waits before the next attempt. Returns false at once on a request to stop: SIGINT, SIGTERM,
/// SIGHUP, SIGQUIT or SIGUSR1. Drops SIGUSR2, which is for the program. These signals must be
/// blocked.
bool wait_for_next_attempt(std::chrono::seconds time);

}  // namespace lockstep::launcher
