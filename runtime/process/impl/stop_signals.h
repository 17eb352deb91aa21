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

/// SIGTERM and SIGUSR1, which Slurm, `lockstep run` and others send; also SIGINT (Ctrl-C) if no
/// launcher started this process and the program neither handles nor ignores SIGINT.
std::vector<int> usual_stop_signals();

/// A sleeping thread that does not block SIGINT, so that the handler runs although others block it.
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

/// Blocks and counts `signals` while it lives; the destructor restores the earlier handlers.
///
/// The signals are blocked in the thread that makes this object and in threads that it starts
/// later. A signal stays pending until came() takes it, so no handler interrupts arithmetic: the
/// LSTM backward of oneDNN, as in LibTorch 2.11 on processors with AVX-512, damages the heap if one
/// does. A Runtime starts LibTorch's compute threads with blocked signals (start_compute_threads).
/// An older thread may get the signal in a handler, which counts it. Child processes inherit the
/// blocked signals. A second SIGINT ends the process, even within a step.
///
/// Signals are process-wide: every live StopSignals sees them. Destroy them in reverse order of
/// construction, on the thread that made them.
/// Threads: came() on any; a signal to one thread alone (std::raise) is seen on that thread.
/// Errors: Error for a signal that cannot be caught.
class StopSignals {
 public:
  [[nodiscard]] explicit StopSignals(const std::vector<int>& signals);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// True if a signal came since construction.
  bool came() const noexcept;

 private:
  void put_back() noexcept;
  int count() const noexcept;  // all signals so far, pending ones included

  std::optional<InterruptThread> interrupts_;  // where SIGINT is one of the signals
  sigset_t signals_;
  sigset_t blocked_here_;  // the signals that were not blocked before
  pthread_t maker_;
  int before_ = 0;  // count() at construction
  std::vector<std::pair<int, struct sigaction>> replaced_;
};

}  // namespace lockstep::detail
