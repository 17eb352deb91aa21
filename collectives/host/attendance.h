#pragma once

#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/host/open_calls.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

class Transport;

/// Why a rank calls no more collectives in this step.
struct StepCause {
  int rank = 0;  // the rank that failed
  ExitCode code = ExitCode::peer_lost;
  std::string text;  // empty: an exception has destroyed a communicator of that rank
};
/// The cause as a text that ranks send to each other, and back.
std::string to_text(const StepCause& cause);
StepCause parse_step_cause(const std::string& text);
/// What a collective throws for this cause.
PeerStepFailed failure_of(const StepCause& cause);

/// The calls of one communicator, which its ranks can leave together.
class LeavableCalls {
 public:
  virtual ~LeavableCalls() = default;
  virtual const std::string& name() const = 0;
  virtual bool has_failed() const = 0;
  virtual void advance() = 0;
  /// Tells the peers that this rank makes no further call in this round.
  virtual void leave_step(uint64_t round, const std::string& cause) = 0;
  virtual OpenCalls open_calls() const = 0;
  /// Tells the peers that this rank makes no further call at all.
  virtual void leave() noexcept = 0;
  /// Completes the calls that all ranks have made, and abandons the others because of `why`.
  virtual void settle(const CallsOfRanks& calls, const std::exception_ptr& why) = 0;
};

/// Whether this rank takes part in the collectives of the present step, on all communicators of its
/// Runtime. ClosureCalls says what it is for. Threads: as the communicators.
class Attendance {
 public:
  /// `meeting`: all ranks; for ClosureCalls alone. `rank`: of this rank there.
  Attendance(std::shared_ptr<Transport> meeting, int rank)
      : meeting_(std::move(meeting)), rank_(rank) {}

  const std::shared_ptr<Transport>& meeting() const { return meeting_; }
  int rank() const { return rank_; }
  /// The first one is the communicator of all ranks.
  void add(const std::shared_ptr<LeavableCalls>& calls);
  /// Of the communicators that still exist, in the order of their making.
  std::vector<std::shared_ptr<LeavableCalls>> all();
  /// Advances all communicators, for peers that have not come to the meeting yet.
  void advance();

  /// Counts the meetings, from 1. Equal on all ranks.
  uint64_t round() const { return round_; }
  bool is_away() const { return cause_.has_value(); }
  /// Of the rank that is away.
  const StepCause& cause() const { return *cause_; }
  /// Throws PeerStepFailed if this rank has left, or what lose() has got.
  void require_present();
  /// This rank leaves, and tells its peers. Does nothing if it has left.
  void leave(const StepCause& cause);
  /// Tells the peers that this rank makes no further call in this round, but on the communicator
  /// of all ranks and on those with these names.
  void leave_all_but(const std::vector<std::string>& names, const StepCause& cause);
  void end_round() { ++round_; }

  /// Between these two the ranks meet, and calls are completed although this rank is away.
  void begin_meeting();
  void end_meeting();
  bool meets() const { return meets_; }
  /// From now on until end_meeting() advance() does nothing: peers may abandon calls.
  void begin_settling() { settles_ = true; }
  /// A communicator that an exception destroys. Its peers hear of the exception from
  /// leave_because() or, if a handler has it, with this rank's next call.
  void keep_destroyed(std::shared_ptr<LeavableCalls> calls);
  /// Tells them that there has been an exception.
  void let_go_of_destroyed();
  bool is_world(const LeavableCalls& calls) const { return &calls == world_; }

  /// The ranks could not meet: every later call throws this.
  void lose(const CommunicationError& error);

 private:
  std::shared_ptr<Transport> meeting_;
  int rank_;
  std::vector<std::weak_ptr<LeavableCalls>> all_;
  std::vector<std::shared_ptr<LeavableCalls>> destroyed_;
  const LeavableCalls* world_ = nullptr;
  uint64_t round_ = 1;
  std::optional<StepCause> cause_;
  std::optional<CommunicationError> lost_;
  bool meets_ = false;
  bool settles_ = false;
};

}  // namespace lockstep::detail
