#pragma once

#include <chrono>
#include <deque>
#include <fstream>
#include <functional>
#include <iosfwd>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rank/rank_line.h"

namespace lockstep::launcher {

struct OutputOptions {
  bool terminal = false;              // `out` is a terminal: progress bars are redrawn
  bool tag = true;                    // "[rank] " before each line
  std::string log_dir;                // empty: no log files
  std::set<int> shown_ranks;          // empty: all. Log files are written for all ranks
  bool verbose = false;               // shows mpirun's own text at once
  std::function<int()> columns = {};  // of the terminal, for each redrawn line; null: any
};

/// Merges the output of all ranks: their standard outputs become one stream, and so do their
/// standard errors. Each rank also has a log file. Keeps the last lines of each rank (the beginning
/// of a long line) for a report of its failure. Text that the next line overwrites is shown on a
/// terminal only, cut to its columns.
class JobOutput {
 public:
  using Clock = std::chrono::steady_clock;
  /// Throws std::runtime_error if the log folder cannot be made or written to.
  JobOutput(std::ostream& out, std::ostream& error, OutputOptions options);

  /// Ignores lines that are not output.
  void add(const RankLine& line);
  /// Adds a line of mpirun. Most of its lines on standard error are advice about a rank that ended,
  /// and a better report follows soon: they are held back.
  void add_other(const std::string& line, bool is_error);
  /// Shows lines that were held back long enough. Returns when to call it again.
  std::optional<Clock::time_point> tick();
  /// Shows the lines that are still held back, or drops them.
  void release(bool show);

  /// The last lines of a rank, without C++ backtraces: ten, or more if its last message, from "rank
  /// R: " on, is longer.
  std::vector<std::string> last_lines(int rank) const;
  /// The same without "rank R: " at the start of lines, to compare ranks.
  std::vector<std::string> comparable_lines(int rank) const;
  /// Empty without log files.
  std::string log_path(int rank) const;

 private:
  void print(const RankLine& line, const std::string& text, bool redraw);
  void keep(int rank, const std::string& text);
  void log(int rank, const std::string& text);
  void clear_redrawn();

  std::ostream& out_;
  std::ostream& error_;
  OutputOptions options_;
  bool redrawn_ = false;  // the terminal's line holds a progress bar
  std::map<std::pair<int, bool>, std::string> beginnings_;
  std::map<int, std::deque<std::string>> kept_;
  std::map<int, std::ofstream> logs_;
  bool log_failed_ = false;
  std::deque<std::pair<Clock::time_point, std::string>> held_;
};

/// Moves rank-*.log and failure.json of the previous attempt (of this run or an earlier one) to
/// DIR/attempt-N, with the first free N from 1 on. Throws std::runtime_error if they cannot be
/// moved. Does nothing if there are none.
void set_old_logs_aside(const std::string& log_dir);

}  // namespace lockstep::launcher
