#pragma once

#include <lockstep/runtime/table.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Where and how a Progress prints.
struct ProgressOutput {
  std::ostream* stream = nullptr;  // null: nothing is printed
  bool terminal = false;           // true: redraws one line
  /// Returns seconds since any fixed time.
  std::function<double()> clock;
  /// Returns the number of columns of the terminal; asked for each line. Null: 80.
  std::function<int()> columns = {};

  /// Standard output if `prints` is true (rank 0), else no output. The output counts as a terminal
  /// if standard output is a terminal. mpirun gives its ranks a pseudo-terminal, so under mpirun
  /// mpirun's standard output must be a terminal too. Set LOCKSTEP_PROGRESS to "bar" or "plain" to
  /// override this. The columns are those of the terminal now, under
  /// `lockstep run` without those of the tag; else those of COLUMNS; else 80.
  static ProgressOutput standard(bool prints);
};

/// Shows the progress of a loop: percent, bar, rate, time left, and values that the loop passes.
///
///   lockstep::Progress progress("train", steps, runtime.is_main());
///   for (...) { ...; progress.show(step, {{"loss", loss}, {"scale", scale}}); }
///   for (...) {
///     ...;
///     progress.show(step, [&] { return Progress::Values{{"loss", report.mean_loss()}}; });
///   }
///
/// On a terminal one line is redrawn, at most 10 times per second. The line is never longer than
/// the terminal: first the bar becomes shorter, then the end of the line is cut. The line ends at
/// 100 %, so that what the program prints next begins a new one. Elsewhere, as in a file, a plain
/// line is printed for the first iteration, for every log_every() iterations, and for the last.
/// Ranks: every rank makes a Progress; the rank with `prints` true prints. Threads: one at a time.
/// Throws Error if total < 1.
class Progress {
 public:
  using Values = std::vector<std::pair<std::string, double>>;

  Progress(std::string label, int64_t total, bool prints);
  Progress(std::string label, int64_t total, ProgressOutput output);
  /// Ends the line on the terminal, if the loop ended before 100 %.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Where the output is no terminal: one line for every `iterations` iterations. Default: a line
  /// about every 5 %, and one after each minute. Throws Error if iterations < 1.
  Progress& log_every(int64_t iterations);

  /// A loop that goes on after `done` iterations of an earlier run: the rate and the time left
  /// count the iterations after them. Throws Error if done < 0.
  Progress& begin_at(int64_t done);

  /// Reports that `done` of `total` iterations are complete. Values are printed as given, integers
  /// in full.
  void show(int64_t done, const Values& values = {});
  /// Calls `values` only when a line is printed, so that values on a device are read only then.
  void show(int64_t done, const std::function<Values()>& values);

 private:
  bool is_due(int64_t done, double now) const;
  bool is_plain_line_due(int64_t done, double now) const;
  void redraw(const std::string& line, bool last);
  size_t limit() const;
  std::string line(int64_t done, double seconds, const Values& values) const;

  std::string label_;
  int64_t total_;
  ProgressOutput output_;
  double start_ = 0.0;
  int64_t before_ = 0;  // iterations of an earlier run
  double shown_at_ = 0.0;
  int64_t shown_ = -1;     // `done` of the last line printed
  size_t width_ = 0;       // columns of the terminal's open line
  int64_t log_every_ = 0;  // 0: by share and time
};

}  // namespace lockstep
