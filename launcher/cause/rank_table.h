#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "rank/life_signs.h"
#include "rank/rank_line.h"

namespace lockstep::launcher {

/// What the launcher knows about a rank.
struct RankRecord {
  LifeSigns signs;
  std::string host;         // empty: it has not started
  int wrapper = 0;          // process number of its exec-rank on that host
  int suspended_by = 0;     // a signal such as SIGSTOP; 0: it runs, or ran until a rank failed
  bool early = false;       // ended with 0 before its runtime had ended
  bool was_asked = false;   // to stop
  std::optional<int> code;  // its exit code; 128 + n for signal n; empty: it runs
  bool has_ended() const { return code.has_value(); }
};

/// How a rank failed.
struct RankFailure {
  int rank = 0;
  int code = 0;            // 128 + n for signal n
  bool was_asked = false;  // to stop
};

/// All ranks of an attempt, by the reports of their wrappers.
class RankTable {
 public:
  using Clock = std::chrono::steady_clock;
  using Stage = LifeSigns::Stage;
  explicit RankTable(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  /// Ignores lines of output.
  void add(const RankLine& line);

  int size() const { return static_cast<int>(ranks_.size()); }
  const RankRecord& operator[](int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  /// In the order in which ranks ended or reported that they fail.
  const std::vector<RankFailure>& failures() const { return failures_; }
  /// Whether a rank has failed, reports that it fails, or ended without a runtime that others make.
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
  /// The time of the last life sign or end.
  Clock::time_point last_change() const { return last_change_; }
  /// The newest snapshot that a rank reported; empty: none.
  const std::string& snapshot() const { return snapshot_; }

 private:
  void note(const RankFailure& failure);

  std::vector<RankRecord> ranks_;
  std::vector<RankFailure> failures_;
  Clock::time_point last_change_ = Clock::now();
  std::string snapshot_;
};

}  // namespace lockstep::launcher
