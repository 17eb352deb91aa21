#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {

enum class ExitCode : int;

/// Thrown for misuse or bad input. Nothing was changed, and the message names what is wrong. Thrown
/// on every rank if ranks share or compare the value that is wrong.
class Error : public std::runtime_error {
 public:
  /// The code is `usage`.
  explicit Error(const std::string& message);
  Error(const std::string& message, ExitCode code) : std::runtime_error(message), code_(code) {}
  /// `ranks`: see ranks().
  Error(const std::string& message, ExitCode code, std::vector<int> ranks);
  ExitCode code() const noexcept { return code_; }
  /// Where ranks were compared: those that differ from more than half of the ranks, ascending; all
  /// ranks if no value has such a majority. Where gradients are not finite: the ranks whose are
  /// not. Where a rank failed in its step or its part of a save: that rank. Of other errors empty.
  /// `lockstep run` blames these ranks.
  const std::vector<int>& ranks() const noexcept;

 private:
  ExitCode code_;
  std::shared_ptr<const std::vector<int>> ranks_;  // copying an exception must not throw
};

/// Thrown when a peer is gone or did not arrive in time. The communicator that threw it is
/// unusable, and so is every tensor that a pending collective wrote to. MPI cannot start again in
/// this process: end it, and start all ranks again from the last snapshot.
class CommunicationError : public Error {
 public:
  /// The code is `peer_lost`.
  explicit CommunicationError(const std::string& message);
  /// `code`: that of the error because of which the peer left.
  CommunicationError(const std::string& message, ExitCode code) : Error(message, code) {}
};

/// Thrown by a collective that cannot be completed because another rank has failed in its step
/// (Trainer::step). It has the exit code of that rank's error. Let it leave the closure: step()
/// then throws the same Error on every rank, and communicators and Trainer work on.
class PeerStepFailed : public Error {
 public:
  /// `rank`: the rank that failed, among those of the Runtime.
  PeerStepFailed(int rank, const Error& cause);
  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

}  // namespace lockstep
