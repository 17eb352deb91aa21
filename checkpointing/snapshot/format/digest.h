#pragma once

#include <cstddef>
#include <string>

namespace lockstep::snapshot {

/// XXH3 with 64 bits and seed 0 of the bytes, as 16 hexadecimal digits (most significant first, as
/// xxhsum -H3 prints it).
std::string digest_of(const void* data, size_t bytes);
inline std::string digest_of(const std::string& text) {
  return digest_of(text.data(), text.size());
}

/// Whether the text has the form of a digest.
bool is_digest(const std::string& text);

}  // namespace lockstep::snapshot
