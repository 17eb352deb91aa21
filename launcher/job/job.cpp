#include "job/job.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "clean/leftovers.h"
#include "machine/machine.h"
#include "rank/exit_codes.h"
#include "rank/terminal_columns.h"

namespace lockstep::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t whole_line = 1 << 20;  // wrappers have cut the lines of ranks already
// The longest time for mpirun to end the other ranks of a failed job; usually 2 s are enough.
constexpr int teardown_seconds = 10;
// How long the other ranks may go on after one has ended, if mpirun does not end them. Open MPI 4's
// does within this time.
constexpr auto lets_others_be = seconds(2);
// A rank that waits for a disk or a device is suspended later.
constexpr auto longest_suspending = seconds(1);

/// A single rank has a wrapper, too, which ends the rank when this process dies.
std::vector<std::string> wrapped(const JobCommand& command) {
  std::vector<std::string> arguments = command.arguments;
  if (!command.uses_mpirun()) {
    arguments.insert(arguments.begin(), {own_program(), "exec-rank", "--"});
  }
  return arguments;
}

bool is_wrapper(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/cmdline", std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return process > 0 && text.str().find(std::string("\0exec-rank\0", 11)) != std::string::npos;
}

std::vector<StopLadder::Rung> teardown_of(const JobCommand& command) {
  std::vector<StopLadder::Rung> rungs = {{SIGTERM, seconds(1)}, {SIGKILL, seconds(1)}};
  if (command.launcher_ends_ranks) {
    rungs.insert(rungs.begin(), {command.end_signal(), seconds(2)});
  }
  return rungs;
}

template <typename... Times>
std::optional<StopLadder::Clock::time_point> earliest(const Times&... times) {
  std::optional<StopLadder::Clock::time_point> first;
  for (const auto& time : {times...}) {
    if (time && (!first || *time < *first)) {
      first = time;
    }
  }
  return first;
}

}  // namespace

Job::Job(const RunOptions& options, const JobCommand& command,
         std::optional<Clock::time_point> deadline, JobOutput& output, StopLadder& ladder)
    : options_(options),
      deadline_(deadline),
      uses_mpirun_(command.uses_mpirun()),
      ends_ranks_(command.launcher_ends_ranks),
      output_(output),
      ladder_(ladder),
      teardown_(teardown_of(command)),
      ranks_(command.ranks),
      deadlines_(options),
      child_(wrapped(command), SIGTERM, /*has_life_signs=*/false, columns_for_ranks()),
      streams_{LineSplitter(whole_line), LineSplitter(whole_line)} {}

JobEnd Job::run() {
  if (uses_mpirun_) {
    note_job(leftover_places(), child_.pid());
  }
  ChildProcess::Events events;
  const auto reader = [&](bool is_error) {
    return [this, is_error](const std::string& text, char) { take(text, is_error); };
  };
  events.on_bytes = [&](bool is_error, std::string_view bytes) {
    streams_[is_error].add(bytes, reader(is_error));
  };
  events.on_signal = [&](int signal) { take(signal); };
  events.tick = [&] { return tick(); };
  const int code = child_.run(events);
  for (const bool is_error : {false, true}) {
    streams_[is_error].finish(reader(is_error));
  }
  end_.code = code_of(code);
  if (end_.mpirun_was_killed && all_ranks([](const RankRecord& rank) { return rank.code == 0; })) {
    end_.code = 0;
  }
  end_local_ranks();
  end_.was_asked = end_.was_asked || ladder_.asked() != 0;
  return end_;
}

int Job::code_of(int mpirun) const {
  if (mpirun != 0 || !ends_ranks_) {
    return mpirun;
  }
  if (!ranks_.failures().empty()) {
    return ranks_.failures().front().code;
  }
  return all_ranks([](const RankRecord& rank) { return rank.has_ended(); }) ? 0 : exit_peer_lost;
}

void Job::take(const std::string& text, bool is_error) {
  if (const auto line = decode(text)) {
    ranks_.add(*line);
    output_.add(*line);
    if (line->kind == RankLine::Kind::job && !has_noted_job_) {
      has_noted_job_ = true;
      note_job(leftover_places(), child_.pid(), line->text);
    }
    if (holds_request_ && has_begun()) {
      holds_request_ = false;
      child_.send(SIGUSR1, false);
    }
    if (line->kind == RankLine::Kind::redraw) {
      child_.set_columns(columns_for_ranks());
    }
  } else {
    output_.add_other(text, is_error);
  }
}

bool Job::has_begun() const {
  return all_ranks([](const RankRecord& record) { return record.wrapper != 0; });
}

void Job::send(int signal) {
  if (signal == SIGUSR1 && !has_begun()) {
    holds_request_ = true;
  } else {
    child_.send(signal, false);
  }
}

void Job::take(int signal) {
  const auto send_it = [&](int each) { send(each); };
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    end_.was_asked = end_.was_asked || signal == SIGUSR1;
    const auto begun = ranks_.where([](const RankRecord& record) { return record.wrapper != 0; });
    if (signal == SIGUSR1 || !begun.empty()) {  // before that SIGUSR2 would kill mpirun
      send(signal);
    }
    return;
  }
  if (signal == SIGTSTP) {
    suspend();
  }
  if (signal == SIGTSTP || signal == SIGCONT) {
    return;
  }
  const char* what = ladder_.asked() != 0 ? ": asking harder" : ": asking the ranks to stop";
  if (ladder_.ask(signal, send_it)) {
    std::cerr << "lockstep: SIG" << sigabbrev_np(signal) << what << std::endl;
  }
}

std::optional<Job::Clock::time_point> Job::tick() {
  const auto send_it = [&](int signal) { send(signal); };
  const auto tear_down = [&](int signal) {
    end_.mpirun_was_killed = end_.mpirun_was_killed || signal != SIGALRM;
    send(signal);
  };
  look_at_failures();
  look_at_mpirun();
  look_at_deadlines();
  look_at_suspension();
  const auto suspension =
      suspended_at_ ? std::make_optional(*suspended_at_ + longest_suspending) : std::nullopt;
  std::optional<Clock::time_point> teardown = teardown_at_;
  if (teardown_at_ && Clock::now() >= *teardown_at_) {
    if (teardown_.asked() == 0) {
      if (is_only_mpirun_left_) {
        std::cerr << "lockstep: all ranks have ended, but mpirun has not: ending it (a connection "
                     "of another program to its port holds it)"
                  << std::endl;
      }
      teardown_.ask(SIGTERM, tear_down);
    }
    teardown = teardown_.tick(tear_down);
  }
  return earliest(ladder_.tick(send_it), deadlines_.next(), teardown, deadline_, output_.tick(),
                  suspension);
}

void Job::tear_down_in(Clock::duration time) {
  const auto at = Clock::now() + time;
  teardown_at_ = teardown_at_ ? std::min(*teardown_at_, at) : at;
}

void Job::look_at_failures() {
  const auto has_failed = [](const RankRecord& rank) { return rank.code.value_or(0) != 0; };
  if (ends_ranks_ && !ranks_.where(has_failed).empty()) {
    tear_down_in(lets_others_be);
  } else if (ladder_.asked() == 0 && ranks_.size() > 1 && ranks_.has_failure()) {
    tear_down_in(seconds(std::min(options_.grace_seconds, teardown_seconds)));
  }
}

/// A connection from outside of the job to one of its ports keeps Open MPI's mpirun from ending.
void Job::look_at_mpirun() {
  if (uses_mpirun_ && !teardown_at_ &&
      all_ranks([](const RankRecord& rank) { return rank.has_ended(); })) {
    tear_down_in(seconds(std::min(options_.grace_seconds, teardown_seconds)));
    is_only_mpirun_left_ = true;
  }
}

void Job::look_at_deadlines() {
  if (deadline_ && Clock::now() >= *deadline_) {
    deadline_.reset();
    end_.overdue =
        "the job took longer than " + std::to_string(options_.timeout_seconds) + " s (--timeout)";
    std::cerr << "lockstep: " << end_.overdue << ": asking the ranks to stop" << std::endl;
    ladder_.ask(SIGTERM, [&](int signal) { send(signal); });
  }
  if (teardown_at_ || ladder_.asked() != 0) {
    return;
  }
  if (const auto finding = deadlines_.look(ranks_)) {
    if (finding->is_overdue) {
      end_.overdue = finding->text;
      end_.late = finding->late;
      tear_down_in({});
    } else {
      std::cerr << "lockstep: " << finding->text << std::endl;
    }
  }
}

/// The columns beside the widest tag; 0: the output is no terminal.
int Job::columns_for_ranks() const {
  const int tag = options_.tag ? static_cast<int>(std::to_string(ranks_.size() - 1).size() + 3) : 0;
  return isatty(STDOUT_FILENO) == 1 ? std::clamp(columns_of_output() - tag, 1, USHRT_MAX) : 0;
}

std::vector<int> Job::running_here() const {
  const std::string host = host_name();
  return ranks_.where([&](const RankRecord& record) {
    return record.host == host && !record.has_ended() && is_wrapper(record.wrapper);
  });
}

void Job::suspend() {
  if (suspended_at_) {
    return;
  }
  const bool is_asked = ladder_.asked() != 0 || teardown_at_;
  if (is_asked || !has_begun() || !all_ranks([host = host_name()](const RankRecord& rank) {
        return rank.has_ended() || rank.host == host;
      })) {
    std::cerr << "lockstep: the job is not suspended: "
              << (is_asked       ? "it is being ended"
                  : !has_begun() ? "its ranks are being started"
                                 : "some of its ranks are on other hosts")
              << std::endl;
    return;
  }
  std::cerr << "lockstep: suspended with its ranks, which keep their memory; fg or bg lets them go "
               "on"
            << std::endl;
  suspended_at_ = Clock::now();
  for (const int rank : running_here()) {
    kill(ranks_[rank].wrapper, SIGTSTP);
  }
}

void Job::look_at_suspension() {
  const bool are_suspended =
      all_ranks([](const RankRecord& rank) { return rank.has_ended() || rank.suspended_by != 0; });
  if (!suspended_at_ || !(are_suspended || Clock::now() >= *suspended_at_ + longest_suspending)) {
    return;
  }
  kill(getpid(), SIGSTOP);  // returns when somebody continues the launcher
  for (const int rank : running_here()) {
    kill(ranks_[rank].wrapper, SIGCONT);
  }
  deadlines_.begin_again();
  if (deadline_) {
    *deadline_ += Clock::now() - *suspended_at_;
  }
  suspended_at_.reset();
}

/// mpirun ends its ranks, unless it was killed: then the wrappers of this host end their ranks
/// within 1.2 s.
void Job::end_local_ranks() const {
  for (const int signal : {SIGTERM, SIGKILL}) {
    const auto limit = Clock::now() + seconds(2);
    for (const int rank : running_here()) {
      kill(ranks_[rank].wrapper, signal);
    }
    while (!running_here().empty() && Clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
}

}  // namespace lockstep::launcher
