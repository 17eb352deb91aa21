#include "rank/rank_process.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <utility>

#include "machine/machine.h"
#include "rank/exit_codes.h"
#include "rank/life_signs.h"
#include "rank/line_splitter.h"
#include "rank/terminal_columns.h"

namespace lockstep::launcher {
namespace {

using Clock = StopLadder::Clock;

/// The time that a failing rank has to report why before it is asked to stop.
constexpr auto last_words = std::chrono::milliseconds(400);

RankLine::Kind kind_of(char line_end) {
  return line_end == '\n'   ? RankLine::Kind::line
         : line_end == '\r' ? RankLine::Kind::redraw
                            : RankLine::Kind::partial;
}

/// Runs one program, from its first line to its status.
class RankProcess {
 public:
  using OnLines = std::function<void(const std::vector<RankLine>&)>;
  RankProcess(RankPlace place, const std::vector<std::string>& program, StopLadder& ladder,
              const OnLines& on_lines)
      : place_(place),
        ladder_(ladder),
        on_lines_(on_lines),
        child_(program, SIGKILL, /*has_life_signs=*/true, columns_of_launcher()) {}

  int run() {
    ChildProcess::Events events;
    events.on_bytes = [&](bool is_error, std::string_view bytes) { print(is_error, bytes); };
    events.on_signal = [&](int signal) { take(signal); };
    events.tick = [&] { return tick(); };
    events.on_word = [&](const std::string& word) {
      signs_.add(word);
      failed_first_ = failed_first_ || (signs_.fails() && !stopped_);
      say(RankLine::Kind::word, word);
    };
    events.on_halt = [&](int signal) { say(RankLine::Kind::halted, std::to_string(signal)); };
    const int code = child_.run(events);
    for (const bool is_error : {false, true}) {
      streams_[is_error].finish(keeper(is_error));
    }
    return end_with(code);
  }

 private:
  void say(RankLine::Kind kind, std::string text) {
    on_lines_({{place_.rank, kind, std::move(text)}});
  }

  LineSplitter::OnLine keeper(bool is_error) {
    return [this, is_error](const std::string& text, char line_end) {
      lines_.push_back({place_.rank, kind_of(line_end), text, is_error});
    };
  }

  void print(bool is_error, std::string_view bytes) {
    streams_[is_error].add(bytes, keeper(is_error));
    if (std::any_of(lines_.begin(), lines_.end(),
                    [](const RankLine& line) { return line.kind == RankLine::Kind::redraw; })) {
      child_.set_columns(columns_of_launcher());  // the terminal may have been resized
    }
    on_lines_(std::exchange(lines_, {}));
  }

  void take(int signal) {
    if (signal == SIGUSR1 || signal == SIGUSR2) {
      stopped_ = stopped_ || signal == SIGUSR1;
      child_.send(signal, false);
    } else if (signs_.fails() && !stopped_ && !ask_at_) {
      ask_at_ = Clock::now() + last_words;
      asked_with_ = signal;
    } else {
      ask(signal);
    }
  }

  void ask(int signal) {
    stopped_ = true;
    ask_at_.reset();
    ladder_.ask(signal, sender());
  }

  std::optional<Clock::time_point> tick() {
    if (ask_at_ && Clock::now() >= *ask_at_) {
      ask(asked_with_);
    }
    return ask_at_ ? ask_at_ : ladder_.tick(sender());
  }

  std::function<void(int)> sender() {
    return [this](int signal) { child_.send(signal, signal != SIGUSR1); };
  }

  int end_with(int code) {
    using Kind = RankLine::Kind;
    Kind kind = stopped_ ? Kind::stopped : Kind::status;
    if (failed_first_ && stopped_) {
      kind = Kind::status;
      // Killed before it reported its code: counts as a lost peer.
      code = signs_.end().code != 0 ? signs_.end().code : code > 128 ? exit_peer_lost : code;
    } else if (code == 0 && place_.has_peers && signs_.has_session()) {
      kind = Kind::early;
      code = exit_peer_lost;
    }
    lines_.push_back({place_.rank, kind, std::to_string(code)});
    on_lines_(lines_);
    return code;
  }

  RankPlace place_;
  StopLadder& ladder_;
  OnLines on_lines_;
  ChildProcess child_;
  std::array<LineSplitter, 2> streams_;
  std::vector<RankLine> lines_;
  LifeSigns signs_;
  bool stopped_ = false;
  bool failed_first_ = false;  // before it was asked to stop
  int asked_with_ = 0;
  std::optional<Clock::time_point> ask_at_;
};

}  // namespace

int run_rank(RankPlace place, const std::vector<std::string>& program, StopLadder& ladder,
             const std::function<void(const std::vector<RankLine>&)>& on_lines) {
  on_lines({{place.rank, RankLine::Kind::began, std::to_string(getpid()) + " " + host_name()}});
  return RankProcess(place, program, ladder, on_lines).run();
}

}  // namespace lockstep::launcher
