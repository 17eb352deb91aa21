#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <pthread.h>

#include <csignal>
#include <future>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// SIGTERM and SIGUSR1, which Slurm, `lockstep run` and others send; and SIGINT (Ctrl-C) if no
/// launcher started this process and the program does nothing else about SIGINT.
std::vector<int> usual_stop_signals();

/// A thread that lets SIGINT through, which the threads that compute block, and sleeps.
class [[nodiscard]] InterruptThread {
 public:
  InterruptThread();
  ~InterruptThread();
  InterruptThread(const InterruptThread&) = delete;
  InterruptThread& operator=(const InterruptThread&) = delete;

 private:
  std::promise<void> end_;
  std::thread thread_;
};

/// Notices signals while it lives; then what was done about them before is done again.
///
/// The signals are blocked in the thread that makes this, and in those that this thread starts
/// later: a signal waits until came() takes it, and interrupts no arithmetic. That matters: the
/// LSTM backward of oneDNN, as in LibTorch 2.11 on processors with AVX-512, damages the heap if a
/// signal handler interrupts it. A Runtime starts LibTorch's compute threads with blocked signals
/// (start_compute_threads). Another thread that is older than this may get the signal in a handler,
/// which counts it. Programs that the process starts inherit the blocked signals.
/// A second SIGINT ends the process, also in the middle of a step: an InterruptThread takes the
/// first.
///
/// One signal is for the whole process, so every StopSignals of it sees one that comes. Of several
/// at a time the last made ends first, on the thread that made it.
/// Threads: came() on any; a signal to one thread alone (std::raise) is seen on that thread.
/// Errors: Error for a signal that cannot be caught.
class StopSignals {
 public:
  [[nodiscard]] explicit StopSignals(const std::vector<int>& signals);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Whether one came since this was made.
  bool came() const noexcept;

 private:
  void put_back() noexcept;
  int count() const noexcept;  // of all signals so far, with those that wait

  std::optional<InterruptThread> interrupts_;  // where SIGINT is one of the signals
  sigset_t signals_;
  sigset_t blocked_here_;  // those that were not blocked before
  pthread_t maker_;
  int before_ = 0;  // signals that had come to this process
  std::vector<std::pair<int, struct sigaction>> replaced_;
};

}  // namespace lockstep::detail
