#include <lockstep/checkpointing/snapshot/format/folder_names.h>

#include <cstdio>
#include <cstdlib>

namespace lockstep::snapshot {

std::string step_folder(int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%012lld", static_cast<long long>(step));
  return text;
}

std::optional<int64_t> step_of(const std::string& folder_name) {
  const size_t digits = folder_name.find_first_of("0123456789");
  if (digits == std::string::npos || folder_name.size() > 30) {
    return std::nullopt;
  }
  const int64_t step = std::strtoll(folder_name.c_str() + digits, nullptr, 10);
  return step_folder(step) == folder_name ? std::make_optional(step) : std::nullopt;
}

bool is_temporary_of(const std::string& name, const std::string& run) {
  const std::string end = temporary_name("", run);
  return name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

}  // namespace lockstep::snapshot
