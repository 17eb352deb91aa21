#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::detail {

/// What a rank is doing and since when, in memory that its peers read at any time, also while the
/// rank is stopped. Zeroed memory is an empty slot. Threads: one writes at a time; a reader may see
/// parts of two texts, never anything else.
class ActivitySlot {
 public:
  static constexpr size_t kBytes = 96;

  void write(const std::string& text, double since);
  std::string text() const;
  double since() const { return since_.load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, kBytes / 8> words_;
  std::atomic<double> since_;
};

/// Seconds of a clock that all processes of a host share.
double activity_clock();

// The functions below are about the rank that runs on the calling thread.

/// Shows what the rank does in `slot`, too, from now on and as long as `slot` lives.
void show_activity_in(const std::shared_ptr<ActivitySlot>& slot);

/// Notes what the rank does from now on: "forward of micro-batch", 2. Cheap.
void note_activity(const char* what, int64_t number);

/// Notes that the rank waits, and takes that back at the end. The slots of other communicators than
/// that of `own` say that the wait is on another communicator.
class WaitingNote {
 public:
  [[nodiscard]] WaitingNote(const std::string& text, const std::shared_ptr<ActivitySlot>& own);
  ~WaitingNote();
  WaitingNote(const WaitingNote&) = delete;
  WaitingNote& operator=(const WaitingNote&) = delete;

 private:
  std::string before_;
  double since_;
};

/// Names the collectives that this thread calls while the object lives, in messages:
/// "bucket 4".
class CallLabel {
 public:
  [[nodiscard]] CallLabel(const char* what, int64_t number);
  ~CallLabel();
  CallLabel(const CallLabel&) = delete;
  CallLabel& operator=(const CallLabel&) = delete;

  /// Empty if there is none.
  static const std::string& current();
};

}  // namespace lockstep::detail
