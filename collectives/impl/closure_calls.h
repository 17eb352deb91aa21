#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/outcome.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lockstep::detail {

class Attendance;

/// How ranks leave the collectives of a step in which one of them has failed. The failed rank may
/// be missing in a collective that its peers wait in, on any communicator.
///
/// A rank leaves: it says so on all its communicators, with the number of its last call on each,
/// and makes no further one. A peer that waits for a later call of it throws PeerStepFailed, and
/// has left, too. All ranks that leave meet. There they complete the calls that every rank has
/// made, abandon the others, and have made the same number of calls on each communicator again.
///
/// For a Runtime's communicator and what is split from it. Copies refer to the same state. Threads:
/// as the communicators.
class ClosureCalls {
 public:
  /// `name`: attended_name() of the communicator.
  ClosureCalls(std::shared_ptr<Attendance> attendance, std::string name, bool can_meet);

  const std::shared_ptr<Attendance>& attendance() const { return attendance_; }
  const std::string& name() const { return name_; }
  /// Whether the communicator's collectives can be abandoned: not those in device memory.
  bool can_meet() const { return can_meet_; }

  /// Counts the meetings, from 1. Equal on all ranks.
  uint64_t round() const;
  /// Whether this rank has left and not met the others yet.
  bool is_away() const;
  /// Leaves, if this rank has not left, and waits until all ranks have. Returns the Error that
  /// every rank throws: it quotes the ranks that failed. `mine`: of this rank, if it failed itself.
  /// Throws CommunicationError with the cause and its code if a rank does not come. Collective.
  SharedError meet(const std::optional<Error>& mine);

  // Where ranks cannot meet, because collectives in device memory cannot be abandoned: a failed
  // rank goes on with the calls of the step, and its peers are told where they wait for it in vain.

  /// This rank has failed in its step, and makes no further call but on this communicator, on that
  /// of all ranks, and on `devices`.
  void tell_peers(const Error& mine, const ClosureCalls& devices);
  /// All ranks know that the step has failed, and none waits in its closure.
  void end_round();
  /// For a rank that has followed a peer out of a collective.
  CommunicationError left_behind() const;

  bool operator==(const ClosureCalls& other) const { return attendance_ == other.attendance_; }

 private:
  void settle() const;

  std::shared_ptr<Attendance> attendance_;
  std::string name_;
  bool can_meet_;
  Communicator meeting_;
};

/// Those of the communicator; none on one rank.
std::optional<ClosureCalls> closure_calls(const Communicator& communicator);
/// Makes them for `world` and what is split from it later. Returns `world`. Collective.
Communicator with_closure_calls(const Communicator& world);

}  // namespace lockstep::detail
