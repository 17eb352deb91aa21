#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::detail {

/// Moves collectives on while the rank computes and calls nothing of lockstep: between nodes, data
/// would wait otherwise until a long operation ends. The thread sleeps between two attempts, blocks
/// all signals but those of faults, and sleeps without end while there is nothing to do.
class ProgressThread {
 public:
  /// `advance` is called on the new thread. It returns whether something is left to do, and throws
  /// nothing.
  explicit ProgressThread(std::function<bool()> advance);
  /// Waits for the end of a call of `advance`.
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// There is something to do. From any thread.
  void wake();

 private:
  void run();

  const std::function<bool()> advance_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false;
  bool closing_ = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace lockstep::detail
