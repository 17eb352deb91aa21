#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Error;
enum class ExitCode : int;

}  // namespace lockstep

namespace lockstep::detail {

struct Outcome;

/// One text of the messages of all ranks (in rank order; empty: no message): "rank 1: no disk".
/// Ranks with the same message are named together: "ranks 0-3: no disk".
std::string quoted(const std::vector<std::string>& messages);

/// All ranks or none: if an action fails on any rank, every rank throws the same Error, with the
/// text of each rank that failed and the exit code of the first.
///
/// An action must not communicate with the ranks of the agreement. A CommunicationError passes
/// through as it is: the other ranks get their own. Ranks: every call is collective, except
/// outcome_of(). Threads: one at a time; outcome_of() may run on any.
class Agreement {
 public:
  /// `otherwise`: the exit code of exceptions that have none of their own; default: usage.
  explicit Agreement(Communicator communicator);
  Agreement(Communicator communicator, ExitCode otherwise);

  /// True on every rank if `mine` is true on one.
  bool any(bool mine) const;

  /// Runs `action` on every rank.
  void attempt(const std::function<void()>& action) const;
  /// The same; the Error begins with `doing`.
  void attempt(const std::string& doing, const std::function<void()>& action) const;
  /// The same for an action that returns a text for the other ranks. Returns the texts of all
  /// ranks.
  std::vector<std::string> gather(const std::string& doing,
                                  const std::function<std::string()>& action) const;

  /// Throws the same Error on every rank if any rank passes one.
  void raise_if_any(const std::optional<Error>& mine) const;
  /// Throws the same Error on every rank. Called when all ranks know that one of them failed.
  [[noreturn]] void raise(const std::optional<Error>& mine) const;
  /// The same; the Error that this rank throws has `cause` nested in it (std::rethrow_if_nested).
  [[noreturn]] void raise(const Error& mine, const std::exception_ptr& cause) const;

  /// First half of attempt() and gather(): runs the action, returns its text or its error. Local.
  Outcome outcome_of(const std::function<std::string()>& action) const;
  /// Second half: the outcomes of all ranks, in rank order.
  std::vector<Outcome> exchange(const Outcome& mine) const;

  const Communicator& communicator() const { return communicator_; }

 private:
  Communicator communicator_;
  ExitCode otherwise_;
};

}  // namespace lockstep::detail
