#include <lockstep/collectives/impl/backoff.h>

#include <hwy/cache_control.h>
#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace lockstep::detail {
namespace {

constexpr int kPolls = 200;  // a peer that is a microsecond late is noticed at once
constexpr int kSpins = 400;  // with the pause between; longer hurts ranks that share a core
constexpr std::chrono::milliseconds kBeforeSleep(50);
constexpr std::chrono::milliseconds kBetweenChecks(1);
constexpr int64_t kLongestSleepUs = 1000;
// More between two pauses is no wait for peers: this process was suspended, or had no core.
constexpr std::chrono::seconds kLongestPause(1);

}  // namespace

void Backoff::pause() {
  ++pauses_;
  if (!crowded_ && pauses_ <= kSpins) {
    if (pauses_ > kPolls) {
      hwy::Pause();
    }
    return;
  }
  const bool first = pauses_ == (crowded_ ? 1 : kSpins + 1);
  const Clock::time_point before = std::exchange(now_, Clock::now());
  if (!first && now_ - before > kLongestPause) {
    start_ += now_ - before - kLongestPause;
  }
  if (first) {
    start_ = now_;
    next_check_ = now_ + kBetweenChecks;
    sleep_us_ = 0;
  }
  if (now_ - start_ < kBeforeSleep) {
    sched_yield();
    return;
  }
  sleep_us_ = std::min(sleep_us_ + 10, kLongestSleepUs);
  std::this_thread::sleep_for(std::chrono::microseconds(sleep_us_));
}

bool Backoff::is_time_to_check() {
  if (pauses_ == 0 || (!crowded_ && pauses_ <= kSpins) || now_ < next_check_) {
    return false;
  }
  next_check_ = now_ + kBetweenChecks;
  return true;
}

double Backoff::seconds() const {
  return std::chrono::duration<double>(now_ - start_).count();
}

}  // namespace lockstep::detail
