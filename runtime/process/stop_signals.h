#pragma once

#include <csignal>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// Catches signals while it lives; then what was done about them before is done again.
///
/// One signal is for the whole process, so every StopSignals of it sees one that comes. Of several
/// at a time the last made ends first.
/// Threads: came() on any, also in a signal handler. Errors: Error for a signal that cannot be
/// caught.
class StopSignals {
 public:
  explicit StopSignals(const std::vector<int>& signals);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Whether one came since this was made.
  bool came() const noexcept;

 private:
  void put_back() noexcept;

  int before_;  // signals that had come to this process
  std::vector<std::pair<int, struct sigaction>> replaced_;
};

}  // namespace lockstep::detail
