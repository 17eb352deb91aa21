#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/exceptions.h>

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

}  // namespace lockstep::detail
