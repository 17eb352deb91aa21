#pragma once

#include <c10/util/StringUtil.h>

#include <exception>
#include <stdexcept>
#include <string>

namespace lockstep {

/// Exit codes of programs that use lockstep. All are below 110 and none is 128 + n, so they cannot
/// be confused with mpirun's own codes.
enum class ExitCode : int {
  ok = 0,
  usage = 2,        // wrong arguments, options or calls
  environment = 3,  // wrong rank count, missing device, missing library
  data = 10,        // a data file is missing, truncated or malformed
  snapshot = 11,    // a snapshot cannot be used
  peer_lost = 20,   // a rank died or did not arrive in time; restart from the last snapshot
  diverged = 21,    // replicas differ that must be equal
  non_finite = 22,  // too many updates in a row were skipped: the non-finite budget is spent
  out_of_memory = 23,
  preempted = 75,  // stopped on request; a snapshot was saved
};

/// Thrown for misuse or bad input. Nothing was changed, and the message names what is wrong. Thrown
/// on every rank if ranks share or compare the value that is wrong.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::usage)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// Thrown when a peer is gone or did not arrive in time. The communicator that threw it is
/// unusable, and so is every tensor that a pending collective wrote to. MPI cannot start again in
/// this process: end it, and start all ranks again from the last snapshot.
class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& message) : Error(message, ExitCode::peer_lost) {}
};

}  // namespace lockstep

/// LOCKSTEP_CHECK(condition, message parts...) throws lockstep::Error (code usage) with the joined
/// parts if the condition is false.
#define LOCKSTEP_CHECK(condition, ...)                  \
  do {                                                  \
    if (!(condition)) {                                 \
      throw ::lockstep::Error(::c10::str(__VA_ARGS__)); \
    }                                                   \
  } while (false)

/// LOCKSTEP_CHECK with the given exit code instead of `usage`.
#define LOCKSTEP_CHECK_CODE(condition, exit_code, ...)               \
  do {                                                               \
    if (!(condition)) {                                              \
      throw ::lockstep::Error(::c10::str(__VA_ARGS__), (exit_code)); \
    }                                                                \
  } while (false)
