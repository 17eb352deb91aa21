#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/error.h>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// How one rank's part of an action ended that all ranks complete or none.
struct Outcome {
  std::optional<Error> error;  // why this rank failed, if it did
  std::string text;            // for the other ranks, if it did not
};

/// What an Agreement throws on every rank.
class SharedError : public Error {
 public:
  SharedError(const Error& error, bool is_own) : Error(error), is_own_(is_own) {}
  /// Whether this rank failed itself, alone or with others.
  bool is_own() const noexcept { return is_own_; }

 private:
  bool is_own_;
};

/// The Error that every rank throws because of these outcomes, one of each rank in rank order;
/// nothing if no rank failed. It quotes each rank that failed and has the exit code of the first.
std::optional<Error> failure_in(const std::vector<Outcome>& outcomes);

/// What each rank said, in rank order, empty for nothing, as one text: "rank 1: no disk". Ranks
/// that said the same are named together: "ranks 0-3: no disk".
std::string quoted(const std::vector<std::string>& messages);

/// All ranks or none: if an action fails on any rank, every rank throws the same Error, with the
/// text of each rank that failed and the exit code of the first.
///
/// An action must not communicate with the ranks of the agreement. A CommunicationError passes
/// through as it is: the other ranks get their own. Ranks: every call is collective, except
/// outcome_of(). Threads: one at a time; outcome_of() may run on any.
class Agreement {
 public:
  /// `otherwise`: the exit code of exceptions that have none of their own, or usage.
  explicit Agreement(Communicator communicator, ExitCode otherwise = ExitCode::usage)
      : communicator_(std::move(communicator)), otherwise_(otherwise) {}

  /// True on every rank if it is on one.
  bool any(bool mine) const;

  /// Runs `action` on every rank.
  void attempt(const std::function<void()>& action) const;
  /// The same; the Error begins with `doing`.
  void attempt(const std::string& doing, const std::function<void()>& action) const;
  /// The same for an action that has a text for the others. Returns every rank's text.
  std::vector<std::string> gather(const std::string& doing,
                                  const std::function<std::string()>& action) const;

  /// Throws the same Error on every rank if any rank passes one.
  void raise_if_any(const std::optional<Error>& mine) const;
  /// Throws the same Error on every rank. Called when all ranks know that one of them failed.
  [[noreturn]] void raise(const std::optional<Error>& mine) const;
  /// The same on a rank that failed because of `cause`: that exception is nested in the Error that
  /// this rank throws (std::rethrow_if_nested).
  [[noreturn]] void raise(const Error& mine, const std::exception_ptr& cause) const;

  /// The two halves of attempt() and gather(). Runs the action and keeps what it returns or why it
  /// failed. Local.
  Outcome outcome_of(const std::function<std::string()>& action) const;
  /// Every rank's outcome, in rank order.
  std::vector<Outcome> exchange(const Outcome& mine) const;

  const Communicator& communicator() const { return communicator_; }

 private:
  Communicator communicator_;
  ExitCode otherwise_;
};

}  // namespace lockstep::detail
