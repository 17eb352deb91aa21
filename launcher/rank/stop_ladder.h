#pragma once

#include <chrono>
#include <optional>
#include <vector>

namespace lockstep::launcher {

/// Signals of increasing force; each is sent if the one before did not end the program in time.
class StopLadder {
 public:
  using Clock = std::chrono::steady_clock;
  struct Rung {
    int signal;
    Clock::duration patience;
  };

  /// Two requests less than `same_request` apart count as one: Ctrl-C pressed twice, or a signal
  /// that comes from the terminal and from a scheduler, must not cost the snapshot.
  explicit StopLadder(std::vector<Rung> rungs, Clock::duration same_request = {})
      : rungs_(std::move(rungs)), same_request_(same_request) {}

  /// The signal of the first request to stop; 0: none.
  int asked() const { return asked_; }
  /// Whether the first signal of the ladder was not enough.
  bool is_forced() const { return next_ > 1; }
  /// A request to stop by `signal`: sends the next signal at once. False if it counts as the same
  /// request as the one before.
  template <typename Send>
  bool ask(int signal, Send send) {
    const auto now = Clock::now();
    const bool same = asked_ != 0 && now - asked_at_ < same_request_;
    asked_at_ = now;
    asked_ = asked_ != 0 ? asked_ : signal;
    if (!same) {
      climb(send);
    }
    return !same;
  }
  /// Sends the next signal if it is due. Returns when to call it again.
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
  Clock::duration same_request_;
  size_t next_ = 0;
  int asked_ = 0;
  Clock::time_point asked_at_;
  Clock::time_point due_;
};

}  // namespace lockstep::launcher
