#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/outcome.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

class NodeEngine;

/// Why a rank calls no more collectives in this step.
struct StepCause {
  int rank = 0;  // the rank that failed
  ExitCode code = ExitCode::usage;
  std::string text;
};
/// The cause as a text that ranks send to each other, and back.
std::string to_text(const StepCause& cause);
StepCause parse_step_cause(const std::string& text);

/// How ranks leave the collectives of a step in which one of them has failed. The failed rank may
/// be missing in a collective that its peers wait in, on any communicator.
///
/// A rank leaves: it says so on all its communicators, with the number of its last call on each,
/// and makes no further one. A peer that waits for a later call of it throws PeerStepFailed, and
/// has left, too. All ranks that leave meet. There they complete the calls that every rank has
/// made, abandon the others, and have made the same number of calls on each communicator again.
///
/// One object a rank, for its Runtime's communicator and what is split from it. Threads: as the
/// communicators.
class ClosureCalls {
 public:
  /// `meeting`: all ranks; for nothing else.
  explicit ClosureCalls(Communicator meeting);

  /// Counts the meetings, from 1. Equal on all ranks.
  uint64_t round() const { return round_; }
  /// Whether this rank has left and not met the others yet.
  bool is_away() const { return cause_.has_value(); }
  /// Throws PeerStepFailed if this rank has left.
  void require_present() const;
  /// This rank leaves. Does nothing if it has left. Local.
  void leave(const StepCause& cause);
  /// Waits until all ranks have left. Returns the Error that every rank throws: it quotes the ranks
  /// that failed. `mine`: of this rank, if it failed itself. Throws CommunicationError with the
  /// cause and its code if a rank does not come. Collective.
  SharedError meet(const std::optional<Error>& mine);

  // For the engines of the communicators.
  void add(const std::shared_ptr<NodeEngine>& engine);
  /// Advances all communicators, for peers that have not left yet.
  void advance();
  bool meets() const { return meets_; }
  int rank() const { return meeting_.rank(); }

 private:
  std::vector<std::shared_ptr<NodeEngine>> engines();
  void settle();

  Communicator meeting_;
  std::vector<std::weak_ptr<NodeEngine>> engines_;  // in the order of their making
  uint64_t round_ = 1;
  std::optional<StepCause> cause_;
  std::optional<CommunicationError> lost_;
  bool meets_ = false;
};

/// Those of the communicator; null where ranks cannot leave collectives together, as over NCCL.
std::shared_ptr<ClosureCalls> closure_calls(const Communicator& communicator);
/// Makes them for `world` and what is split from it later. Returns `world`. Collective.
Communicator with_closure_calls(const Communicator& world);

}  // namespace lockstep::detail
