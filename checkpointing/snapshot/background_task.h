#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace lockstep::snapshot {

/// One action at a time on a thread of its own. The action must not throw. Threads: one uses it.
class BackgroundTask {
 public:
  ~BackgroundTask() { join(); }

  void start(std::function<void()> action) {
    join();
    done_.store(false, std::memory_order_relaxed);
    thread_ = std::thread([this, action = std::move(action)] {
      action();
      done_.store(true, std::memory_order_release);
    });
  }
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  void join() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }

 private:
  std::atomic<bool> done_{true};
  std::thread thread_;
};

}  // namespace lockstep::snapshot
