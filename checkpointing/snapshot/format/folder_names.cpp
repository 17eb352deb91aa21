#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace lockstep::snapshot {

std::string step_folder(const SnapshotId& id) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%012lld", static_cast<long long>(id.step));
  return id.number > 0 ? text + ("." + std::to_string(id.number)) : text;
}

std::optional<SnapshotId> id_of(const std::string& folder_name) {
  const size_t digits = folder_name.find_first_of("0123456789");
  if (digits == std::string::npos || folder_name.size() > 50) {
    return std::nullopt;
  }
  char* end = nullptr;
  const int64_t step = std::strtoll(folder_name.c_str() + digits, &end, 10);
  const int64_t number = *end == '.' ? std::strtoll(end + 1, nullptr, 10) : 0;
  const SnapshotId id(step, number);
  return step_folder(id) == folder_name ? std::make_optional(id) : std::nullopt;
}

std::optional<int64_t> step_of(const std::string& folder_name) {
  const auto id = id_of(folder_name);
  return id ? std::make_optional(id->step) : std::nullopt;
}

std::vector<SnapshotId> ids_in(const std::string& folder) {
  std::vector<SnapshotId> ids;
  for (const std::string& name : names_in(folder)) {
    if (const auto id = id_of(name)) {
      ids.push_back(*id);
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

bool is_temporary_of(const std::string& name, const std::string& run) {
  const std::string end = temporary_name("", run);
  return name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

}  // namespace lockstep::snapshot
