#pragma once

#include <lockstep/inputs/exported/graph/program.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep::exported {

/// Compiles the JSON of a program. `home`: device and dtype of most parameters at export;
/// `namespaces`: of registered operators that it may call. Throws
/// Malformed, or nlohmann::json::exception, for a program that violates the schema or cannot be
/// run; the text says what to do.
Program compile(const nlohmann::json& program, const Place& home,
                const std::vector<std::string>& namespaces);

}  // namespace lockstep::exported
