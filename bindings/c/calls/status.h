#pragma once

#include <string>

namespace lockstep::c {

/// Call in a catch block. Notes the message of the exception for lockstep_last_error() and returns
/// its lockstep_status.
int note_failure() noexcept;
const char* last_error() noexcept;

/// Runs the body of a function of the C interface and returns its lockstep_status. No exception
/// passes.
template <typename Body>
int status_of(const Body& body) noexcept {
  try {
    body();
    return 0;
  } catch (...) {
    return note_failure();
  }
}

}  // namespace lockstep::c
