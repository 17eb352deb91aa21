#include "job/restart_policy.h"

#include <lockstep/collectives/exit_code.h>

#include <algorithm>
#include <csignal>
#include <ctime>

namespace lockstep::launcher {
namespace {

constexpr auto longest_wait = std::chrono::seconds(60);

const char* why_useless(int code) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::usage:
      return "wrong usage stays wrong";
    case ExitCode::environment:
      return "the environment has to be put right first";
    case ExitCode::data:
      return "the data would be the same";
    case ExitCode::snapshot:
      return "no snapshot can be used";
    case ExitCode::diverged:
      return "replicas differ: look at the named rank's host before going on";
    case ExitCode::non_finite:
      return "the same updates would be skipped again";
    case ExitCode::out_of_memory:
      return "the memory would be too small again";
    case ExitCode::preempted:
      return "the job was preempted: its scheduler starts it again";
    default:
      // 126 and 127 are a shell's: no such program, or one that cannot be run.
      return code == 126 || code == 127 ? "the program cannot be run" : nullptr;
  }
}

}  // namespace

RestartPolicy::Decision RestartPolicy::after(int code, Seconds uptime, bool has_progress,
                                             const std::function<bool(bool)>& changes_world) {
  if (code == 0 || max_restarts_ == 0) {
    return {};
  }
  const std::string not_again = "not started again: ";
  if (const char* reason = why_useless(code)) {
    return {false, Seconds(0), not_again + reason + " (exit code " + std::to_string(code) + ")"};
  }
  if (restarts_ == max_restarts_) {
    return {false, Seconds(0), not_again + "all restarts of --max-restarts are used up"};
  }
  const bool is_short = uptime < min_uptime_ && !has_progress;
  short_attempts_ = is_short ? short_attempts_ + 1 : 0;
  if (changes_world && changes_world(is_short)) {
    short_attempts_ = 0;
  }
  if (short_attempts_ >= 2) {
    return {false, Seconds(0),
            not_again + "two attempts in a row saved nothing and were shorter than " +
                std::to_string(min_uptime_.count()) + " s (--min-uptime)"};
  }
  ++restarts_;
  const Seconds wait =
      is_short ? std::min<Seconds>(longest_wait, Seconds(1 << std::min(restarts_, 6))) : Seconds(1);
  if (deadline_ && Clock::now() + wait >= *deadline_) {
    return {false, Seconds(0),
            not_again + "the time of the whole run ends before the next attempt (--timeout)"};
  }
  return {true, wait, ""};
}

bool wait_for_next_attempt(std::chrono::seconds time) {
  using Clock = RestartPolicy::Clock;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    sigaddset(&signals, signal);
  }
  const auto end = Clock::now() + time;
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::seconds>(std::max(end - Clock::now(), Clock::duration(0)));
    const timespec limit = {static_cast<time_t>(left.count()), 0};
    const int signal = sigtimedwait(&signals, nullptr, &limit);
    if (signal != SIGUSR2) {
      return signal < 0;
    }
  }
}

}  // namespace lockstep::launcher
