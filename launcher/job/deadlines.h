#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cause/rank_table.h"
#include "start/run_options.h"

namespace lockstep::launcher {

/// Detects ranks that mpirun does not start, ranks that do not start while others wait for them,
/// and ranks that do not end after others have ended.
class Deadlines {
 public:
  using Clock = RankTable::Clock;
  explicit Deadlines(const RunOptions& options) : options_(options) {}

  struct Finding {
    std::string text;         // "rank 2 has not made its runtime for 30 s; ranks 0-1 wait for it"
    bool is_overdue = false;  // the job must be ended
    std::vector<int> late;
  };
  /// A finding to report now, if any. It is repeated each time the wait has doubled.
  std::optional<Finding> look(const RankTable& ranks);
  /// Begins all waits anew, after the job was suspended.
  void begin_again();
  /// When to look again.
  std::optional<Clock::time_point> next() const { return next_; }

 private:
  struct Wait {
    std::vector<int> late;
    std::string what;       // what the late ranks have not done
    std::string others;     // who waits for them, or why they are late; may be empty
    std::string option;     // the option that sets the limit
    int limit_seconds = 0;  // 0: none
    bool operator==(const Wait& other) const { return late == other.late && what == other.what; }
  };
  static std::optional<Wait> start_wait(const RankTable& ranks, int limit_seconds);
  static std::optional<Wait> end_wait(const RankTable& ranks, int limit_seconds);

  const RunOptions& options_;
  std::optional<Wait> wait_;
  Clock::time_point since_;
  Clock::time_point not_before_;  // no wait has begun earlier
  int say_after_ = 0;             // seconds
  std::optional<Clock::time_point> next_;
};

}  // namespace lockstep::launcher
