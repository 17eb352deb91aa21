#pragma once

#include <lockstep/collectives/impl/blocked_signals.h>
#include <sys/resource.h>

#include <atomic>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

namespace lockstep::snapshot {

/// Runs one action at a time on a thread with lower priority (nice + 10), because ranks compute on
/// every core. join() throws the exception of the action. Threads: one.
class BackgroundTask {
 public:
  ~BackgroundTask() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  void start(std::function<void()> action) {
    join();
    done_.store(false, std::memory_order_relaxed);
    const lockstep::detail::BlockedSignals blocked;
    thread_ = std::thread([this, action = std::move(action)] {
      yield_to_others();
      try {
        action();
      } catch (...) {
        failure_ = std::current_exception();
      }
      done_.store(true, std::memory_order_release);
    });
  }
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  void join() {
    if (thread_.joinable()) {
      thread_.join();
    }
    if (failure_ != nullptr) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }

 private:
  /// On Linux the nice value belongs to the thread. A failure does no harm.
  static void yield_to_others() {
    ::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + 10);
  }

  std::atomic<bool> done_{true};
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace lockstep::snapshot
