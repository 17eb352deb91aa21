#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::snapshot {

struct JsonLimits {
  size_t depth = 8;
  size_t values = 2'000'000;
  size_t key_bytes = 4096;
};

/// Parses JSON from an untrusted file: strict UTF-8, no duplicate key, only white space after the
/// document; the limits bound the memory.
/// Throws Error (exit code snapshot) with `file`, the byte (`first_byte` + place in the text) and
/// what is wrong. Threads: any.
nlohmann::json parse_json(std::string_view text, const std::string& file, size_t first_byte = 0,
                          const JsonLimits& limits = {});

/// The document in one line. Throws Error that names `what` if a text in it is not UTF-8.
std::string render_json(const nlohmann::json& document, const char* what);

}  // namespace lockstep::snapshot
