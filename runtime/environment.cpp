#include <lockstep/runtime/environment.h>
#include <lockstep/runtime/runtime.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace lockstep {
namespace {

std::optional<uint64_t> unsigned_from(const char* name, uint64_t low, uint64_t high) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') {
    return std::nullopt;
  }
  const std::string_view view(text);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  LOCKSTEP_CHECK(
      error == std::errc() && end == view.data() + view.size() && value >= low && value <= high,
      "environment variable ", name, "=", view, " is not a whole number from ", low, " to ", high);
  return value;
}

}  // namespace

RuntimeOptions with_environment(RuntimeOptions options) {
  constexpr uint64_t ten_years = 315'360'000;
  if (const auto seed = unsigned_from("LOCKSTEP_SEED", 0, UINT64_MAX)) {
    options.seed(*seed);
  }
  if (const auto seconds = unsigned_from("LOCKSTEP_TIMEOUT", 1, ten_years)) {
    options.timeout(std::chrono::seconds(*seconds));
  }
  if (const auto check = unsigned_from("LOCKSTEP_CHECK", 0, 1)) {
    options.check_collectives(*check == 1);
  }
  return options;
}

}  // namespace lockstep
