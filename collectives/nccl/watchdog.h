#pragma once

#include <lockstep/collectives/impl/blocked_signals.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::detail {

/// A thread that calls `check` every `interval` until it returns false or the object is destroyed.
class Watchdog {
 public:
  Watchdog(std::chrono::milliseconds interval, std::function<bool()> check) {
    const BlockedSignals blocked;
    thread_ = std::thread([this, interval, check = std::move(check)] {
      std::unique_lock<std::mutex> lock(mutex_);
      while (!stopped_.wait_for(lock, interval, [this] { return stop_; })) {
        lock.unlock();
        const bool go_on = check();
        lock.lock();
        if (!go_on) {
          return;
        }
      }
    });
  }
  ~Watchdog() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    stopped_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep::detail
