#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::benchmarks {

/// The repetitions of one measurement: when each began and ended, in seconds of the clock that all
/// processes of a machine share.
///
/// write() appends one JSON line to a file of this process in the folder $LOCKSTEP_BENCH_RECORDS
/// (standard output without it); benchmarks/run.py reads the lines of all ranks.
/// Threads: one.
class Series {
 public:
  Series(std::string name, std::string variant)
      : name_(std::move(name)), variant_(std::move(variant)) {}

  void begin() { begin_at(now()); }
  /// In seconds of that clock.
  void begin_at(double seconds) { begin_.push_back(seconds); }
  void end() { end_.push_back(now()); }
  /// A further number of this process, such as a parameter count.
  void note(const std::string& key, int64_t value) { notes_.emplace_back(key, value); }
  void write() const;

 private:
  static double now();

  std::string name_;
  std::string variant_;
  std::vector<double> begin_;
  std::vector<double> end_;
  std::vector<std::pair<std::string, int64_t>> notes_;
};

}  // namespace lockstep::benchmarks
