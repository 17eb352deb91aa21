#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/collective_call.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::detail {

/// The last 64 collectives of one rank on one communicator, with the state of each.
///
/// Sequence numbers start at 1 and grow by one with each call: equal numbers on two ranks mean the
/// same collective. Threads: as its Communicator.
class CollectiveLog {
 public:
  enum class State : uint8_t { issued, running, complete, failed, captured };
  static constexpr uint64_t kCapacity = 64;

  /// The number that the next call gets.
  uint64_t next_sequence() const { return next_; }
  /// Gives the call its sequence number and records it.
  void issue(CollectiveCall& call);
  /// Does nothing for a call that is no longer among the last 64.
  void set_state(uint64_t sequence, State state);
  /// The newest `count` calls, oldest first, one a line: number, call, state, age in seconds.
  std::string render(uint64_t count = kCapacity) const;

  struct Entry {
    CollectiveCall call;
    State state = State::issued;
    double issued_at = 0.0;  // seconds
  };
  /// The newest `count` calls, oldest first.
  std::vector<Entry> newest(uint64_t count = kCapacity) const;

 private:
  std::array<Entry, kCapacity> entries_;
  uint64_t next_ = 1;
};

}  // namespace lockstep::detail
