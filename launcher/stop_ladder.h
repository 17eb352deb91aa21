#pragma once

#include <chrono>
#include <optional>
#include <vector>

namespace lockstep::launcher {

/// Signals of growing force, each sent when the one before did not end the program in time.
class StopLadder {
 public:
  using Clock = std::chrono::steady_clock;
  struct Rung {
    int signal;
    Clock::duration patience;
  };

  explicit StopLadder(std::vector<Rung> rungs) : rungs_(std::move(rungs)) {}

  /// The first signal that we were asked to stop with; 0 if none.
  int asked() const { return asked_; }
  /// Somebody asks us to stop, with `signal`: sends the next one, now.
  template <typename Send>
  void ask(int signal, Send send) {
    asked_ = asked_ != 0 ? asked_ : signal;
    climb(send);
  }
  /// The next signal if its time has come. Returns when to call again.
  template <typename Send>
  std::optional<Clock::time_point> tick(Send send) {
    if (next_ > 0 && Clock::now() >= due_) {
      climb(send);
    }
    return next_ > 0 && next_ < rungs_.size() ? std::make_optional(due_) : std::nullopt;
  }

 private:
  template <typename Send>
  void climb(Send send) {
    if (next_ < rungs_.size()) {
      send(rungs_[next_].signal);
      due_ = Clock::now() + rungs_[next_].patience;
      ++next_;
    }
  }

  std::vector<Rung> rungs_;
  size_t next_ = 0;
  int asked_ = 0;
  Clock::time_point due_;
};

}  // namespace lockstep::launcher
