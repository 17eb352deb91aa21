#include <lockstep/collectives/impl/collective_log.h>

#include <c10/util/StringUtil.h>
#include <time.h>

#include <algorithm>
#include <cstdio>

namespace lockstep::detail {
namespace {

const char* state_name(CollectiveLog::State state) {
  switch (state) {
    case CollectiveLog::State::issued:
      return "issued";
    case CollectiveLog::State::running:
      return "running";
    case CollectiveLog::State::complete:
      return "complete";
    case CollectiveLog::State::failed:
      return "failed";
    case CollectiveLog::State::captured:
      return "captured";
  }
  return "unknown";
}

/// Seconds of a clock that ticks every few milliseconds, because it is cheap to ask.
double seconds_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

void CollectiveLog::issue(CollectiveCall& call) {
  call.sequence = next_++;
  entries_[call.sequence % kCapacity] = {call, State::issued, seconds_now()};
}

void CollectiveLog::set_state(uint64_t sequence, State state) {
  Entry& entry = entries_[sequence % kCapacity];
  if (entry.call.sequence == sequence) {
    entry.state = state;
  }
}

std::vector<CollectiveLog::Entry> CollectiveLog::newest(uint64_t count) const {
  std::vector<Entry> entries;
  for (uint64_t sequence = next_ - std::min({count, kCapacity, next_ - 1}); sequence < next_;
       ++sequence) {
    entries.push_back(entries_[sequence % kCapacity]);
  }
  return entries;
}

std::string CollectiveLog::render(uint64_t count) const {
  const double now = seconds_now();
  std::string text;
  for (const Entry& entry : newest(count)) {
    char age[32];
    std::snprintf(age, sizeof age, "%.2f", now - entry.issued_at);
    text += c10::str("  ", entry.call.describe(), ": ", state_name(entry.state), ", issued ", age,
                     " s ago\n");
  }
  return text;
}

}  // namespace lockstep::detail
