#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Where and how a Progress prints.
struct ProgressOutput {
  std::ostream* stream = nullptr;  // none: nothing is printed
  bool terminal = false;           // true: one line that is redrawn
  /// Seconds from any fixed point.
  std::function<double()> clock;

  /// Standard output of rank 0 (`prints`), nothing for the others. It counts as a terminal if it
  /// is one; under mpirun, which gives its ranks one of its own, if mpirun's is. Set
  /// LOCKSTEP_PROGRESS to "bar" or "plain" to decide otherwise.
  static ProgressOutput standard(bool prints);
};

/// Shows how far a loop is: percent, bar, rate, time left, and values of the loop's own.
///
///   lockstep::Progress progress("train", steps, runtime.is_main());
///   for (...) { ...; progress.show(step, {{"loss", loss}, {"scale", scale}}); }
///   for (...) { ...; progress.show(step, [&] { return Progress::Values{{"loss", r.loss()}}; }); }
///
/// On a terminal one line is redrawn, at most 10 times a second; elsewhere a plain line appears
/// about every 5 %. Ranks: made by every rank, prints on the one for which `prints` is true.
/// Threads: one at a time. Throws Error when total < 1.
class Progress {
 public:
  using Values = std::vector<std::pair<std::string, double>>;

  Progress(std::string label, int64_t total, bool prints);
  Progress(std::string label, int64_t total, ProgressOutput output);
  /// Ends the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of `total` are done. Values are printed as given; integers in full.
  void show(int64_t done, const Values& values = {});
  /// Asks for the values only where they are printed: what has to be read from a device is read
  /// that often.
  void show(int64_t done, const std::function<Values()>& values);

 private:
  bool is_due(int64_t done, double now) const;
  std::string line(int64_t done, double seconds, const Values& values) const;

  std::string label_;
  int64_t total_;
  ProgressOutput output_;
  double start_ = 0.0;
  double shown_at_ = 0.0;
  int64_t shown_ = -1;  // what show() printed last
  size_t width_ = 0;    // characters on the terminal's line
};

/// "0.4126", "65536", "1.2e-05": four digits, integers in full.
std::string format_number(double value);

}  // namespace lockstep
