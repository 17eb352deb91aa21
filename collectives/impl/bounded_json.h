#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep::detail {

/// What a text of JSON may have. They bound the memory and the stack that it takes.
struct JsonLimits {
  size_t depth = 8;
  size_t values = 2'000'000;
  size_t key_bytes = 4096;
};

/// Why a text was refused.
class BadJson : public std::runtime_error {
 public:
  BadJson(const std::string& complaint, size_t position)
      : std::runtime_error(complaint), position_(position) {}
  /// The byte, from 1, where the text is no JSON; 0 if it breaks a limit.
  size_t position() const { return position_; }

 private:
  size_t position_;
};

/// Parses JSON from a file; every reader of lockstep does it by this function. Strict UTF-8, no
/// duplicate key, only white space after the document. Throws BadJson. Needs the standard library
/// alone. Threads: any.
nlohmann::json bounded_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace lockstep::detail
