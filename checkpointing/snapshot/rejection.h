#pragma once

#include <lockstep/collectives/error.h>

#include <cstdint>
#include <string>

namespace lockstep::snapshot {

/// Throws Error with exit code snapshot: "FILE, byte OFFSET: what is wrong".
template <typename... Parts>
[[noreturn]] void reject_at(const std::string& file, uint64_t offset, const Parts&... parts) {
  throw Error(c10::str(file, ", byte ", offset, ": ", parts...), ExitCode::snapshot);
}

/// The same where no byte is to blame: "FILE: what is wrong".
template <typename... Parts>
[[noreturn]] void reject(const std::string& file, const Parts&... parts) {
  throw Error(c10::str(file, ": ", parts...), ExitCode::snapshot);
}

}  // namespace lockstep::snapshot
