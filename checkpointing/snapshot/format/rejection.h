#pragma once

#include <c10/util/StringUtil.h>

#include <cstdint>
#include <string>

namespace lockstep::snapshot {

/// Throws Error with exit code snapshot. Replaces NUL, which would end the message.
[[noreturn]] void reject_with(std::string message);

/// Throws Error with exit code snapshot: "FILE, byte OFFSET: what is wrong".
template <typename... Parts>
[[noreturn]] void reject_at(const std::string& file, uint64_t offset, const Parts&... parts) {
  reject_with(c10::str(file, ", byte ", offset, ": ", parts...));
}

/// The same without an offset: "FILE: what is wrong".
template <typename... Parts>
[[noreturn]] void reject(const std::string& file, const Parts&... parts) {
  reject_with(c10::str(file, ": ", parts...));
}

}  // namespace lockstep::snapshot
