#include "rank/rank_process.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "clean/leftover_names.h"
#include "clean/own_files.h"
#include "machine/allocation.h"
#include "machine/machine.h"
#include "rank/child_process.h"
#include "rank/exit_codes.h"
#include "rank/life_signs.h"
#include "rank/line_splitter.h"
#include "rank/rank_line.h"
#include "rank/stop_ladder.h"
#include "rank/terminal_columns.h"

namespace lockstep::launcher {
namespace {

using Clock = StopLadder::Clock;
using std::chrono::milliseconds;

/// The time that a failing rank has to report why before it is asked to stop.
constexpr auto last_words = milliseconds(400);
/// The time that a rank has to end itself which said that it may be stuck.
constexpr auto time_to_unwind = std::chrono::seconds(5);
// mpirun ends ranks with SIGTERM, and SIGKILL 0.9 s later.
constexpr auto patience = milliseconds(600);

// A program that has given no life sign may be about to make its runtime this long.
constexpr auto starts_within = std::chrono::seconds(3);
constexpr auto looks_every = milliseconds(50);

/// Whether the signal would end the program, which does not handle, ignore or block it. Between
/// fork and exec the process is a copy of this one, with the signals that this one blocks.
bool would_end(pid_t process, int signal) {
  const std::string folder = "/proc/" + std::to_string(process);
  std::error_code failure;
  if (std::filesystem::equivalent(folder + "/exe", "/proc/self/exe", failure)) {
    return true;
  }
  std::ifstream status(folder + "/status");
  for (std::string field, value; std::getline(status, field, ':') && std::getline(status, value);) {
    const bool is_mask = field == "SigBlk" || field == "SigIgn" || field == "SigCgt";
    if (is_mask && ((std::stoull(value, nullptr, 16) >> (signal - 1)) & 1U) != 0) {
      return false;
    }
  }
  return true;
}

bool reader_is_gone() {
  pollfd standard_error = {STDERR_FILENO, 0, 0};
  return poll(&standard_error, 1, 0) > 0 && (standard_error.revents & POLLERR) != 0;
}

/// Waits until the reader of standard error has read everything, or has ended.
void wait_until_read() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  int waiting = 0;
  while (ioctl(STDERR_FILENO, FIONREAD, &waiting) == 0 && waiting > 0 && !reader_is_gone() &&
         std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

/// Writes to standard error in pieces that mpirun does not cut: it forwards each read of at most
/// 4096 bytes, so the pipe may hold no more than that.
void write_piece(std::string_view piece) {
  wait_until_read();
  while (!piece.empty()) {
    const ssize_t written = write(STDERR_FILENO, piece.data(), piece.size());
    if (written < 0) {
      return;  // the launcher has ended, and mpirun will end this process
    }
    piece.remove_prefix(static_cast<size_t>(written));
  }
}

void write_lines(const std::vector<RankLine>& lines) {
  std::string piece;
  for (const RankLine& line : lines) {
    const std::string text = encode(line);
    if (piece.size() + text.size() > 4096) {
      write_piece(std::exchange(piece, {}));
    }
    piece += text;
  }
  write_piece(piece);
}

RankLine::Kind kind_of(char line_end) {
  return line_end == '\n'   ? RankLine::Kind::line
         : line_end == '\r' ? RankLine::Kind::redraw
                            : RankLine::Kind::partial;
}

/// As the names of its shared memory have it; empty for other libraries, and for Open MPI 5, whose
/// jobs have no numbers.
std::string job_of_open_mpi_4() {
  const char* text = std::getenv("PMIX_NAMESPACE");
  uint32_t job = 0;
  const char* end = text == nullptr ? nullptr : text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, job);
  std::array<char, 16> hex = {};
  if (text != nullptr && error == std::errc() && rest == end) {
    std::to_chars(hex.data(), hex.data() + hex.size(), job, 16);
  }
  return hex.data();
}

/// The same, by the shared memory that a process of this group maps.
std::string job_mapped_by(pid_t group) {
  for (const std::string& name : names_in(open_folder("/proc"))) {
    const auto process = number_in(name);
    if (!process || getpgid(*process) != group) {
      continue;
    }
    std::ifstream maps("/proc/" + name + "/maps");
    for (std::string line; std::getline(maps, line);) {
      const size_t at = line.find("/dev/shm/");
      if (at == std::string::npos) {
        continue;
      }
      if (const std::string job = job_in_segment(line.substr(line.rfind('/') + 1)); !job.empty()) {
        return job;
      }
    }
  }
  return "";
}

/// Runs one program, from its first line to its status.
class RankProcess {
 public:
  explicit RankProcess(const std::vector<std::string>& program)
      : child_(program, SIGKILL, /*has_life_signs=*/true, columns_of_launcher()) {}

  int run() {
    tell_job(job_of_open_mpi_4());
    ChildProcess::Events events;
    events.on_bytes = [&](bool is_error, std::string_view bytes) { print(is_error, bytes); };
    events.on_signal = [&](int signal) { take(signal); };
    events.tick = [&] { return tick(); };
    events.on_word = [&](const std::string& word) {
      signs_.add(word);
      failed_first_ = failed_first_ || (signs_.fails() && !was_asked_);
      if (signs_.is_stuck() && !was_asked_ && !ask_at_) {
        ask_at_ = Clock::now() + time_to_unwind;
        asked_with_ = SIGTERM;
      }
      say(RankLine::Kind::life_sign, word);
      if (!has_told_job_ && signs_.stage() == LifeSigns::Stage::up) {
        tell_job(job_mapped_by(child_.pid()));
      }
    };
    events.on_suspend = [&](int signal) { say(RankLine::Kind::suspended, std::to_string(signal)); };
    const int code = child_.run(events);
    for (const bool is_error : {false, true}) {
      streams_[is_error].finish(keeper(is_error));
    }
    return end_with(code);
  }

 private:
  void say(RankLine::Kind kind, std::string text) { write_lines({{rank_, kind, std::move(text)}}); }

  void tell_job(const std::string& job) {
    if (!job.empty()) {
      has_told_job_ = true;
      say(RankLine::Kind::job, job);
    }
  }

  LineSplitter::OnLine keeper(bool is_error) {
    return [this, is_error](const std::string& text, char line_end) {
      lines_.push_back({rank_, kind_of(line_end), text, is_error});
    };
  }

  void print(bool is_error, std::string_view bytes) {
    streams_[is_error].add(bytes, keeper(is_error));
    if (std::any_of(lines_.begin(), lines_.end(),
                    [](const RankLine& line) { return line.kind == RankLine::Kind::redraw; })) {
      child_.set_columns(columns_of_launcher());  // the terminal may have been resized
    }
    write_lines(std::exchange(lines_, {}));
  }

  void take(int signal) {
    if (signal == SIGUSR1) {
      was_asked_ = true;
      holds_request_ = true;
      hand_over_request();
    } else if (signal == SIGUSR2) {
      child_.send(signal, false);
    } else if (signal == SIGTSTP || signal == SIGCONT) {
      child_.send(signal == SIGTSTP ? SIGSTOP : SIGCONT, true);
    } else if (signs_.fails() && !was_asked_ && !ask_at_) {
      ask_at_ = Clock::now() + last_words;
      asked_with_ = signal;
    } else {
      ask(signal);
    }
  }

  /// Sends the request to save and leave. One that comes while the program starts, and would end
  /// it, is kept until the program handles it (Trainer::stop_on_signals()).
  void hand_over_request() {
    const bool starts = signs_.has_session() || Clock::now() - began_ < starts_within;
    if (holds_request_ && !(starts && would_end(child_.pid(), SIGUSR1))) {
      holds_request_ = false;
      child_.send(SIGUSR1, false);
    }
  }

  void ask(int signal) {
    was_asked_ = true;
    ask_at_.reset();
    ladder_.ask(signal, sender());
  }

  std::optional<Clock::time_point> tick() {
    if (ask_at_ && Clock::now() >= *ask_at_) {
      ask(asked_with_);
    }
    hand_over_request();
    const auto next = ask_at_ ? ask_at_ : ladder_.tick(sender());
    const auto look = Clock::now() + looks_every;
    return holds_request_ && (!next || *next > look) ? look : next;
  }

  std::function<void(int)> sender() {
    return [this](int signal) {
      was_killed_ = was_killed_ || signal == SIGKILL;
      child_.send(signal, signal != SIGUSR1);
    };
  }

  /// Whether it died of a signal that is no request to stop: a crash, or the system killed it.
  bool died_by_itself(int code) const {
    const std::set<int> requests = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
    return code > 128 && requests.count(code - 128) == 0 && !(was_killed_ && code == 128 + SIGKILL);
  }

  int end_with(int code) {
    using Kind = RankLine::Kind;
    Kind kind = was_asked_ && !died_by_itself(code) ? Kind::ended_after_request : Kind::status;
    if (failed_first_ && was_asked_) {
      kind = Kind::status;
      // Killed before it reported its code: counts as a lost peer.
      code = signs_.end().code != 0 ? signs_.end().code : code > 128 ? exit_peer_lost : code;
    } else if (code == 0 && ranks_in_environment() > 1 && signs_.has_session()) {
      kind = Kind::early;
      code = exit_peer_lost;
    }
    lines_.push_back({rank_, kind, std::to_string(code)});
    write_lines(lines_);
    return code;
  }

  const int rank_ = rank_in_environment();
  const Clock::time_point began_ = Clock::now();
  StopLadder ladder_{{{SIGTERM, patience}, {SIGKILL, patience}}};
  ChildProcess child_;
  std::array<LineSplitter, 2> streams_;
  std::vector<RankLine> lines_;
  LifeSigns signs_;
  bool has_told_job_ = false;
  bool was_asked_ = false;
  bool was_killed_ = false;  // by this wrapper
  bool holds_request_ = false;
  bool failed_first_ = false;  // before it was asked to stop
  int asked_with_ = 0;
  std::optional<Clock::time_point> ask_at_;
};

}  // namespace

int exec_rank(const std::vector<std::string>& program) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (reader_is_gone()) {  // mpirun has ended before the line above was read
    return 128 + SIGTERM;
  }
  write_lines({{rank_in_environment(), RankLine::Kind::began,
                std::to_string(getpid()) + " " + host_name()}});
  const int code = RankProcess(program).run();
  wait_until_read();
  return code;
}

}  // namespace lockstep::launcher
