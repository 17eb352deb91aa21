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
  bool terminal = false;              // `out` is one, so progress bars are redrawn
  bool tag = true;                    // "[rank] " before each line
  std::string log_dir;                // empty: no log files
  std::set<int> shown_ranks;          // empty: all. Log files are written for all ranks
  bool verbose = false;               // shows mpirun's own text at once, whatever it says
  std::function<int()> columns = {};  // of the terminal, asked for each redrawn line; null: any
};

/// Merges what the ranks print: their standard output and standard error each become one stream;
/// each rank has a log file; the last lines of each, of a long one its beginning, are kept for the
/// case that it fails. Text that
/// the next one overwrites is shown on the terminal only, cut to its columns.
class JobOutput {
 public:
  using Clock = std::chrono::steady_clock;
  /// Throws std::runtime_error when the log folder cannot be made or written to.
  JobOutput(std::ostream& out, std::ostream& error, OutputOptions options);

  /// Lines that are no output change nothing.
  void add(const RankLine& line);
  /// A line of mpirun's own. Most of what mpirun writes to standard error is advice about a rank
  /// that ended, and the report of that comes a moment later: such lines are held back.
  void add_other(const std::string& line, bool is_error);
  /// Shows lines that were held back long enough; returns when to call again.
  std::optional<Clock::time_point> tick();
  /// Shows the lines that are still held back, or drops them.
  void release(bool show);

  /// What a rank printed last, without C++ backtraces: its last ten lines, or more if its last
  /// message, from "rank R: " on, is longer.
  std::vector<std::string> last_lines(int rank) const;
  /// The same without "rank R: " before a line of that rank, so that ranks can be compared.
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

}  // namespace lockstep::launcher
