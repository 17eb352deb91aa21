#include "predict/json_file.h"

#include <lockstep/collectives/impl/bounded_json.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace lockstep::launcher {
namespace {

using Json = nlohmann::json;

constexpr std::streamoff kMostBytes = std::streamoff{1} << 30;

/// A trace of a million spans of a step.
detail::JsonLimits trace_limits() {
  detail::JsonLimits limits;
  limits.values = 20'000'000;
  return limits;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    throw std::runtime_error(path + ": " + std::strerror(errno));
  }
  const std::streamoff size = file.tellg();
  if (size > kMostBytes) {
    throw std::runtime_error(path + ": is larger than 1 GiB, expected figures or a trace");
  }
  std::string text(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  file.seekg(0);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

}  // namespace

Json json_object(const std::string& path) {
  Json json;
  std::string complaint;
  try {
    json = detail::bounded_json(text_of(path), trace_limits());
  } catch (const detail::BadJson& fault) {
    complaint = std::string(": ") + fault.what();
  }
  if (!json.is_object()) {
    throw std::runtime_error(path + ": cannot be read as a JSON object" + complaint);
  }
  return json;
}

double figure(const Json& object, const char* name, double most, double otherwise,
              const std::string& path) {
  const Json found = object.value(name, Json(otherwise));
  const double value = found.is_number() ? found.get<double>() : -1.0;
  if (!(value >= 0.0 && value <= most)) {
    std::ostringstream text;
    text << path << ": \"" << name << "\" is " << found.dump() << ", expected a number from 0 to "
         << most;
    throw std::runtime_error(text.str());
  }
  return value;
}

}  // namespace lockstep::launcher
