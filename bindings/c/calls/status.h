#pragma once

#include <string>

namespace lockstep::c {

/// Call in a catch block. Keeps the message of the exception for lockstep_last_error() and returns
/// its lockstep_status.
int note_failure() noexcept;
const char* last_error() noexcept;

/// Runs the body of a function of the C interface; returns its lockstep_status. Never throws.
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
