#pragma once

#include <lockstep/collectives/error.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace lockstep::snapshot {

/// Throws Error with exit code snapshot. A NUL in a name from outside would end the message there.
[[noreturn]] inline void reject_with(std::string message) {
  std::replace(message.begin(), message.end(), '\0', '?');
  throw Error(message, ExitCode::snapshot);
}

/// Throws Error with exit code snapshot: "FILE, byte OFFSET: what is wrong".
template <typename... Parts>
[[noreturn]] void reject_at(const std::string& file, uint64_t offset, const Parts&... parts) {
  reject_with(c10::str(file, ", byte ", offset, ": ", parts...));
}

/// The same where no byte is to blame: "FILE: what is wrong".
template <typename... Parts>
[[noreturn]] void reject(const std::string& file, const Parts&... parts) {
  reject_with(c10::str(file, ": ", parts...));
}

}  // namespace lockstep::snapshot
