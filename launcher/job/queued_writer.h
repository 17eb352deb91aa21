#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace lockstep::launcher {

/// Writes to a file by a thread of its own, so that a reader that pauses, such as a pager or a hung
/// tee, holds up nobody else. At most `limit` bytes wait; what does not fit is left out, and a line
/// in its place says how many lines are missing. Threads: any.
class QueuedWriter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kLimit = size_t{64} << 20U;

  /// `name`: of the file, for messages, such as "standard output".
  QueuedWriter(int file, std::string name, size_t limit = kLimit);
  /// Does not wait for the reader: finish() does.
  ~QueuedWriter();
  QueuedWriter(const QueuedWriter&) = delete;
  QueuedWriter& operator=(const QueuedWriter&) = delete;

  /// Adds whole lines, or a text that ends in the middle of one. Never waits.
  void add(std::string text);
  /// Why nothing can be written any more, such as a reader that has gone; empty: it can.
  std::string problem() const;
  /// How much is not written yet.
  size_t waiting() const;
  /// Waits up to `time` until all is written; true if it is, or if nothing can be written any more.
  bool wait(std::chrono::milliseconds time) const;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // the thread has it, too: it may be stuck in a write for ever
};

}  // namespace lockstep::launcher
