#include <lockstep/collectives/error.h>
#include <lockstep/runtime/process/kept_stop_signals.h>
#include <lockstep/runtime/process/stop_signals.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace lockstep::detail {
namespace {

std::atomic<int> signals_so_far{0};
std::atomic<bool> are_kept{false};
std::atomic<int> guests{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch nothing else");

extern "C" void count_signal(int /*signal*/) {
  signals_so_far.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void keep_stop_signals() noexcept {
  if (guests == 0) {
    are_kept = true;
  }
}

ProcessGoesOn::ProcessGoesOn() noexcept {
  ++guests;
}

ProcessGoesOn::~ProcessGoesOn() {
  --guests;
}

StopSignals::StopSignals(const std::vector<int>& signals) : maker_(pthread_self()) {
  sigemptyset(&signals_);
  for (const int signal : signals) {
    sigaddset(&signals_, signal);
  }
  sigset_t before = {};
  pthread_sigmask(SIG_BLOCK, &signals_, &before);
  sigemptyset(&blocked_here_);
  for (const int signal : signals) {
    if (sigismember(&before, signal) == 0) {
      sigaddset(&blocked_here_, signal);
    }
  }
  struct sigaction counted = {};
  counted.sa_handler = count_signal;
  counted.sa_flags = SA_RESTART;
  sigemptyset(&counted.sa_mask);
  for (const int signal : signals) {
    struct sigaction before = {};
    if (sigaction(signal, &counted, &before) != 0) {
      const int reason = errno;
      put_back();
      LOCKSTEP_CHECK(false, "signal ", signal, " cannot ask for a stop: ", std::strerror(reason));
    }
    replaced_.emplace_back(signal, before);
  }
  before_ = count();
}

StopSignals::~StopSignals() {
  put_back();
}

void StopSignals::put_back() noexcept {
  if (are_kept) {
    return;
  }
  count();  // not for those who are asked again from now on
  for (auto entry = replaced_.rbegin(); entry != replaced_.rend(); ++entry) {
    sigaction(entry->first, &entry->second, nullptr);
  }
  if (pthread_equal(maker_, pthread_self()) != 0) {
    pthread_sigmask(SIG_UNBLOCK, &blocked_here_, nullptr);
  }
}

int StopSignals::count() const noexcept {
  const timespec at_once = {};
  while (sigtimedwait(&signals_, nullptr, &at_once) > 0) {
    signals_so_far.fetch_add(1, std::memory_order_relaxed);
  }
  return signals_so_far.load(std::memory_order_relaxed);
}

bool StopSignals::came() const noexcept {
  return count() != before_;
}

}  // namespace lockstep::detail
