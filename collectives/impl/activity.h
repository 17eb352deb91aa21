#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::detail {

/// A rank's current activity and its start time, in memory that its peers can read at any time,
/// also while the rank is stopped. Zeroed memory is an empty slot. Threads: one writer at a time; a
/// reader may see a mixture of the old and the new text.
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

/// Seconds of a clock that is the same in all processes of a host.
double activity_clock();

// The functions below are about the rank that runs on the calling thread.

/// From now on writes the rank's activity to `slot`, too, as long as `slot` exists.
void show_activity_in(const std::shared_ptr<ActivitySlot>& slot);

/// Sets the activity: "forward of micro-batch", 2. Cheap.
void note_activity(const char* what, int64_t number);

/// Sets the activity to a wait; the destructor restores the previous one. `own`: the slot of the
/// communicator that waits; all other slots say that the wait is on another communicator.
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

/// While the object lives, messages name this thread's collectives with this label:
/// "bucket 4".
class CallLabel {
 public:
  [[nodiscard]] CallLabel(const char* what, int64_t number);
  ~CallLabel();
  CallLabel(const CallLabel&) = delete;
  CallLabel& operator=(const CallLabel&) = delete;

  /// Empty if no label is set.
  static const std::string& current();
};

}  // namespace lockstep::detail
