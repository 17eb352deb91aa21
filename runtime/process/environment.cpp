#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/process/impl/environment.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::detail {
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

/// The choice that the variable names.
template <typename Choice>
std::optional<Choice> choice_from(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') {
    return std::nullopt;
  }
  const std::vector<const char*>& names = option_names<Choice>;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::string_view(names[i]) == text) {
      return static_cast<Choice>(i);
    }
  }
  throw Error(c10::str("environment variable ", name, "=", text, " is none of ", joined(names)));
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
  unsigned_from("LOCKSTEP_BACKTRACE", 0, 1);  // as_error() reads it
  if (const auto device = choice_from<DeviceKind>("LOCKSTEP_DEVICE")) {
    options.device(*device);
  }
  if (const auto share = unsigned_from("LOCKSTEP_SHARE_DEVICE", 0, 1)) {
    options.share_device(*share == 1);
  }
  if (const auto transport = choice_from<DeviceTransport>("LOCKSTEP_TRANSPORT")) {
    options.transport(*transport);
  }
  return options;
}

bool dtype_is_probed() {
  return unsigned_from("LOCKSTEP_PROBE_DTYPE", 0, 1).value_or(1) == 1;
}

}  // namespace lockstep::detail
