#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace lockstep::launcher {

/// The object in a file of JSON. Throws std::runtime_error that names the file if it is none, or
/// larger than any trace.
nlohmann::json json_object(const std::string& path);

/// A number of an object, `otherwise` if there is none. Throws std::runtime_error that names file
/// and number if it is no number from 0 to `most`.
double figure(const nlohmann::json& object, const char* name, double most, double otherwise,
              const std::string& path);

}  // namespace lockstep::launcher
