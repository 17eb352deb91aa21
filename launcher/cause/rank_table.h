#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "rank/life_signs.h"
#include "rank/rank_line.h"

namespace lockstep::launcher {

/// What the launcher knows of one rank.
struct RankRecord {
  LifeSigns signs;
  std::string host;         // empty: it has not begun
  int wrapper = 0;          // process number of exec-rank on that host
  int halted_by = 0;        // the signal that has stopped it, such as SIGSTOP
  bool early = false;       // ended with 0 before its runtime
  bool stopped = false;     // it had been asked to stop
  std::optional<int> code;  // how it ended: 128 + n for signal n
  bool has_ended() const { return code.has_value(); }
};

/// How a rank ended that did not end well.
struct RankFailure {
  int rank = 0;
  int code = 0;          // 128 + n for signal n
  bool stopped = false;  // it had been asked to stop
};

/// All ranks of one attempt, as their wrappers report.
class RankTable {
 public:
  using Clock = std::chrono::steady_clock;
  using Stage = LifeSigns::Stage;
  explicit RankTable(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  /// Lines of output change nothing.
  void add(const RankLine& line);

  int size() const { return static_cast<int>(ranks_.size()); }
  const RankRecord& operator[](int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  /// In the order in which they ended, or said that they fail.
  const std::vector<RankFailure>& failures() const { return failures_; }
  /// Whether a rank has failed, or is about to, or has ended without the runtime that others make.
  bool has_failure() const;
  /// The ranks for which `holds(record)`.
  template <typename Holds>
  std::vector<int> where(Holds holds) const {
    std::vector<int> found;
    for (int rank = 0; rank < size(); ++rank) {
      if (holds((*this)[rank])) {
        found.push_back(rank);
      }
    }
    return found;
  }
  /// When a life sign or an end was reported last.
  Clock::time_point last_change() const { return last_change_; }
  /// The newest snapshot that a rank has named; empty: none.
  const std::string& snapshot() const { return snapshot_; }

 private:
  void note(const RankFailure& failure);

  std::vector<RankRecord> ranks_;
  std::vector<RankFailure> failures_;
  Clock::time_point last_change_ = Clock::now();
  std::string snapshot_;
};

}  // namespace lockstep::launcher
