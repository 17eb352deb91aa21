#pragma once

#include <c10/util/StringUtil.h>

#include <exception>
#include <stdexcept>
#include <string>

namespace lockstep {

/// The exit codes of programs that use lockstep. All are below 110 and none is 128 + n, so that
/// mpirun's own codes stay distinguishable.
enum class ExitCode : int {
  ok = 0,
  usage = 2,        // wrong arguments, options or calls
  environment = 3,  // wrong rank count, missing device, missing library
  data = 10,        // a data file is missing, truncated or malformed
  snapshot = 11,    // a snapshot cannot be used
  peer_lost = 20,   // a rank died or did not arrive in time; restart from the last snapshot
  diverged = 21,    // replicas differ where they must be equal
  non_finite = 22,  // the budget of consecutive skipped updates is spent
  out_of_memory = 23,
  preempted = 75,  // stopped on request, snapshot saved
};

/// Misuse or bad input: nothing was changed, and what is wrong is named. Thrown on every rank
/// whenever the cause is something that ranks share or compare.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::usage)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// A peer is gone or did not arrive in time. The communicator that threw it, and every tensor a
/// pending collective wrote to, is unusable: restart, or build a new Runtime.
class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& message) : Error(message, ExitCode::peer_lost) {}
};

}  // namespace lockstep

/// LOCKSTEP_CHECK(condition, parts of a message...) throws lockstep::Error with the joined parts.
#define LOCKSTEP_CHECK(condition, ...)                  \
  do {                                                  \
    if (!(condition)) {                                 \
      throw ::lockstep::Error(::c10::str(__VA_ARGS__)); \
    }                                                   \
  } while (false)

/// The same with an exit code that is not `usage`.
#define LOCKSTEP_CHECK_CODE(condition, exit_code, ...)               \
  do {                                                               \
    if (!(condition)) {                                              \
      throw ::lockstep::Error(::c10::str(__VA_ARGS__), (exit_code)); \
    }                                                                \
  } while (false)
