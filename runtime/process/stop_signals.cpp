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

StopSignals::StopSignals(const std::vector<int>& signals) : before_(signals_so_far.load()) {
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
}

StopSignals::~StopSignals() {
  put_back();
}

void StopSignals::put_back() noexcept {
  if (are_kept) {
    return;
  }
  for (auto entry = replaced_.rbegin(); entry != replaced_.rend(); ++entry) {
    sigaction(entry->first, &entry->second, nullptr);
  }
}

bool StopSignals::came() const noexcept {
  return signals_so_far.load(std::memory_order_relaxed) != before_;
}

}  // namespace lockstep::detail
