#include <lockstep/bindings/c/calls/status.h>
#include <lockstep/bindings/c/lockstep.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/as_error.h>

#include <exception>
#include <new>

namespace lockstep::c {
namespace {

/// Thread-local messages; the constant is used if there is no memory for a message.
thread_local std::string message;
thread_local bool has_no_text = false;

}  // namespace

int note_failure() noexcept {
  try {
    const Error error = detail::as_error(std::current_exception());
    has_no_text = false;
    message = error.what();
    return static_cast<int>(error.code());
  } catch (...) {
    has_no_text = true;
    return LOCKSTEP_OUT_OF_MEMORY;
  }
}

const char* last_error() noexcept {
  return has_no_text ? "out of memory" : message.c_str();
}

#define LOCKSTEP_SAME_CODE(c_name, code) \
  static_assert(c_name == static_cast<int>(ExitCode::code), "the codes of C are the exit codes")
LOCKSTEP_SAME_CODE(LOCKSTEP_OK, ok);
LOCKSTEP_SAME_CODE(LOCKSTEP_USAGE, usage);
LOCKSTEP_SAME_CODE(LOCKSTEP_ENVIRONMENT, environment);
LOCKSTEP_SAME_CODE(LOCKSTEP_DATA, data);
LOCKSTEP_SAME_CODE(LOCKSTEP_SNAPSHOT, snapshot);
LOCKSTEP_SAME_CODE(LOCKSTEP_PEER_LOST, peer_lost);
LOCKSTEP_SAME_CODE(LOCKSTEP_DIVERGED, diverged);
LOCKSTEP_SAME_CODE(LOCKSTEP_NON_FINITE, non_finite);
LOCKSTEP_SAME_CODE(LOCKSTEP_OUT_OF_MEMORY, out_of_memory);
LOCKSTEP_SAME_CODE(LOCKSTEP_PREEMPTED, preempted);

}  // namespace lockstep::c
