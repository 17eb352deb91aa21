#pragma once

#include <deque>
#include <fstream>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rank_line.h"

namespace lockstep::launcher {

/// How a rank ended that ended the job.
struct RankFailure {
  int rank = 0;
  int code = 0;          // 128 + n for signal n
  bool stopped = false;  // it had been asked to stop
};

/// Merges what the ranks print: one stream with "[rank] " before each line, a log file a rank, and
/// the last lines of each for the case that it fails.
class JobOutput {
 public:
  /// `log_dir` may be empty: no log files. `terminal`: `merged` is one, so progress bars are
  /// redrawn. Throws std::runtime_error when the folder cannot be made.
  JobOutput(std::ostream& merged, bool terminal, bool tag, std::string log_dir);

  void add(const RankLine& line);
  /// A line of mpirun's own. After a rank has failed they only repeat that, and are dropped.
  void add_other(const std::string& line);

  /// The rank to blame: the first that failed without being asked to stop. One that lost its peers
  /// counts only if there is no other.
  std::optional<RankFailure> failure() const;
  /// "rank 1 ended with exit code 3" with its last lines. Ranks that printed the same lines, but
  /// for a "rank 1: " before them, and ended with the same code or were asked to stop are named
  /// together. Lines of a C++ backtrace are left out: the cause is above them.
  std::string describe(const RankFailure& failure) const;

 private:
  void print(int rank, const std::string& text, bool redraw);
  void keep(int rank, const std::string& text);
  std::deque<std::string> last_lines(int rank) const;
  std::ofstream& log(int rank);

  std::ostream& merged_;
  bool terminal_;
  bool tag_;
  std::string log_dir_;
  bool redrawn_ = false;  // the terminal's line holds a progress bar
  std::map<int, std::string> beginnings_;
  std::map<int, std::deque<std::string>> last_lines_;
  std::map<int, std::ofstream> logs_;
  std::vector<RankFailure> failures_;
};

}  // namespace lockstep::launcher
