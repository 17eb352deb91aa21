#pragma once

#include <lockstep/collectives/impl/bounded_json.h>

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::snapshot {

using detail::JsonLimits;

/// bounded_json() of a file of a snapshot. Throws Error (exit code snapshot) with `file`, the byte
/// (`first_byte` + place in the text) and what is wrong. Threads: any.
nlohmann::json parse_json(std::string_view text, const std::string& file, size_t first_byte = 0,
                          const JsonLimits& limits = {});

/// The document in one line. Throws Error that names `what` if a text in it is not UTF-8.
std::string render_json(const nlohmann::json& document, const char* what);

}  // namespace lockstep::snapshot
