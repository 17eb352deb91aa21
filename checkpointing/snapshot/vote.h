#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/error.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// What became of one rank's part of something that all ranks must do or none: a text for the
/// others, or why it failed.
struct Outcome {
  bool failed = false;
  std::string text;
  ExitCode code = ExitCode::snapshot;  // of a failure

  /// Runs the action and keeps what it returns, or the message and the exit code of what it throws:
  /// snapshot for all that says no other than usage.
  static Outcome of(const std::function<std::string()>& action);
};

/// Every rank's outcome. Ranks: every one calls it, also one that failed.
std::vector<Outcome> exchange(Communicator& ranks, const Outcome& mine);
/// "rank 1 of 4: ...; ranks 2-3 of 4: ...", or nothing if no rank failed.
std::optional<std::string> failures_in(const std::vector<Outcome>& outcomes);
/// The exit code of the first rank that failed; ok if none did.
ExitCode failure_code(const std::vector<Outcome>& outcomes);
/// Runs the action on every rank; throws the same Error on every rank if it threw on any, with the
/// exit code of the first. Returns every rank's text.
std::vector<std::string> all_or_none(Communicator& ranks, const std::string& doing,
                                     const std::function<std::string()>& action);

}  // namespace lockstep::snapshot
