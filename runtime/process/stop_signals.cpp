#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/launch_environment.h>
#include <lockstep/runtime/process/impl/kept_stop_signals.h>
#include <lockstep/runtime/process/impl/stop_signals.h>

#include <algorithm>
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

std::vector<int> usual_stop_signals() {
  std::vector<int> signals = {SIGTERM, SIGUSR1};
  struct sigaction now = {};
  sigaction(SIGINT, nullptr, &now);
  const bool is_free = now.sa_handler == SIG_DFL || now.sa_handler == count_signal;
  if (is_free && is_started_by_hand()) {
    signals.push_back(SIGINT);
  }
  return signals;
}

InterruptThread::InterruptThread()
    : thread_([this] {
        sigset_t others = {};
        sigfillset(&others);
        sigdelset(&others, SIGINT);
        pthread_sigmask(SIG_SETMASK, &others, nullptr);
        end_.get_future().wait();
      }) {}

InterruptThread::~InterruptThread() {
  end_.set_value();
  thread_.join();
}

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
  if (std::find(signals.begin(), signals.end(), SIGINT) != signals.end()) {
    interrupts_.emplace();
  }
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
  sigemptyset(&counted.sa_mask);
  for (const int signal : signals) {
    counted.sa_flags = signal == SIGINT ? SA_RESTART | SA_RESETHAND : SA_RESTART;
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
  count();  // takes pending signals: the restored handlers must not see them
  for (auto entry = replaced_.rbegin(); entry != replaced_.rend(); ++entry) {
    if (are_kept && entry->first != SIGINT) {
      sigdelset(&blocked_here_, entry->first);
    } else {
      sigaction(entry->first, &entry->second, nullptr);
    }
  }
  if (pthread_equal(maker_, pthread_self()) != 0) {
    pthread_sigmask(SIG_UNBLOCK, &blocked_here_, nullptr);
  }
}

int StopSignals::count() const noexcept {
  const timespec at_once = {};
  for (int signal = 0; (signal = sigtimedwait(&signals_, nullptr, &at_once)) > 0;) {
    if (signal == SIGINT) {
      std::signal(SIGINT, SIG_DFL);  // as SA_RESETHAND does for a handler
    }
    signals_so_far.fetch_add(1, std::memory_order_relaxed);
  }
  return signals_so_far.load(std::memory_order_relaxed);
}

bool StopSignals::came() const noexcept {
  return count() != before_;
}

}  // namespace lockstep::detail
