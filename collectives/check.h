#pragma once

#include <c10/util/StringUtil.h>
#include <lockstep/collectives/exit_code.h>

#include <string>

namespace lockstep::detail {

/// Throws lockstep::Error.
[[noreturn]] void throw_error(const std::string& message);
[[noreturn]] void throw_error(const std::string& message, ExitCode code);

}  // namespace lockstep::detail

/// LOCKSTEP_CHECK(condition, message parts...) throws lockstep::Error (code usage) with the joined
/// parts if the condition is false.
#define LOCKSTEP_CHECK(condition, ...)                          \
  do {                                                          \
    if (!(condition)) {                                         \
      ::lockstep::detail::throw_error(::c10::str(__VA_ARGS__)); \
    }                                                           \
  } while (false)

/// LOCKSTEP_CHECK with the given exit code instead of `usage`.
#define LOCKSTEP_CHECK_CODE(condition, exit_code, ...)                       \
  do {                                                                       \
    if (!(condition)) {                                                      \
      ::lockstep::detail::throw_error(::c10::str(__VA_ARGS__), (exit_code)); \
    }                                                                        \
  } while (false)
