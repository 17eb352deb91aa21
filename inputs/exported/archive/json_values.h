#pragma once

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <c10/util/StringUtil.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep::exported {

/// Thrown for a program that violates the schema of torch.export or cannot be run.
/// parsed() (archive/parsed.h) converts it to an Error with the file.
class Malformed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Parts>
[[noreturn]] void malformed(const Parts&... parts) {
  throw Malformed(c10::str(parts...));
}

/// Read values of the schema of torch.export (torch/_export/serde/schema.py). Throw
/// nlohmann::json::exception or Malformed for a value that the schema does not allow.
int64_t integer(const nlohmann::json& value);
/// A number, or "Infinity", "-Infinity", "NaN".
double floating(const nlohmann::json& value);
at::ScalarType scalar_type(const nlohmann::json& value);
c10::MemoryFormat memory_format(const nlohmann::json& value);
c10::Device device_of(const nlohmann::json& value);
/// The key and the value of a union: an object with one entry.
std::pair<std::string, const nlohmann::json*> alternative(const nlohmann::json& value);

}  // namespace lockstep::exported
