#include <lockstep/collectives/impl/bounded_json.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

/// A text that was accepted reads back as it was, and stays within its limits.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto json = lockstep::detail::bounded_json(text);
    if (lockstep::detail::bounded_json(json.dump()) != json) {
      std::abort();
    }
  } catch (const lockstep::detail::BadJson&) {
    return 0;
  }
  return 0;
}
