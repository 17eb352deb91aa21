#include <lockstep/collectives/host/progress_thread.h>

#include <lockstep/collectives/core/blocked_signals.h>

#include <chrono>
#include <utility>

namespace lockstep::detail {
namespace {

/// At 10 Gb/s a quarter of a MiB arrives in this time; the kernel keeps more for each connection.
constexpr std::chrono::microseconds kPause(200);

}  // namespace

ProgressThread::ProgressThread(std::function<bool()> advance) : advance_(std::move(advance)) {
  const BlockedSignals blocked;
  thread_ = std::thread([this] { run(); });
}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ProgressThread::wake() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (busy_) {
      return;
    }
    busy_ = true;
  }
  changed_.notify_one();
}

void ProgressThread::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!closing_) {
    if (!busy_) {
      changed_.wait(lock);
      continue;
    }
    busy_ = false;
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    const bool is_left = advance_();
    lock.lock();
    busy_ = busy_ || is_left;
  }
}

}  // namespace lockstep::detail
