#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace lockstep::launcher {

/// Whether and when a job that failed is started again.
class RestartPolicy {
 public:
  using Seconds = std::chrono::seconds;
  RestartPolicy(int max_restarts, Seconds min_uptime)
      : max_restarts_(max_restarts), min_uptime_(min_uptime) {}

  struct Decision {
    bool restarts = false;
    Seconds wait{0};
    std::string reason;  // why not; empty where nobody asked for restarts
  };
  /// After an attempt that ended with `code`. `has_progress`: it saved a new snapshot.
  ///
  /// No restart helps against what would be the same again, since a resumed run continues bit for
  /// bit: wrong usage (2), environment (3), data (10), snapshots (11), replicas that differ (21:
  /// look at the named rank's host first), the non-finite budget (22), too little memory (23), a
  /// program that cannot be run (126, 127). A preempted job (75) belongs to its scheduler. Two
  /// attempts in a row that were shorter than the minimum and saved nothing end the restarts, too,
  /// unless `changes_world(is_short)`, which is asked last, says that the next attempt has other
  /// ranks.
  Decision after(int code, Seconds uptime, bool has_progress,
                 const std::function<bool(bool is_short)>& changes_world = {});

 private:
  int max_restarts_;
  Seconds min_uptime_;
  int restarts_ = 0;
  int short_attempts_ = 0;  // in a row
};

}  // namespace lockstep::launcher
