#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/exceptions.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// The result of one rank's part of an action that succeeds on all ranks or on none.
struct Outcome {
  std::optional<Error> error;  // set if this rank failed
  std::string text;            // for the other ranks, if this rank did not fail
};

/// What an Agreement throws on every rank.
class SharedError : public Error {
 public:
  SharedError(const Error& error, bool is_own) : Error(error), is_own_(is_own) {}
  /// Whether this rank is one of those that failed.
  bool is_own() const noexcept { return is_own_; }

 private:
  bool is_own_;
};

/// The Error that every rank throws for these outcomes (of all ranks, in rank order); empty if no
/// rank failed. It quotes each rank that failed and has the exit code of the first.
std::optional<Error> failure_in(const std::vector<Outcome>& outcomes);

}  // namespace lockstep::detail
