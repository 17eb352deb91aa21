#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::snapshot {

/// The names in the folder of a run. A snapshot is step-000000001200/ with a manifest.json;
/// whatever ends in .<run>.tmp is unfinished and belongs to that run; `lock` names the job that
/// writes there.
constexpr char kManifestName[] = "manifest.json";
constexpr char kLatestName[] = "latest";
constexpr char kLockName[] = "lock";

std::string step_folder(int64_t step);
/// None unless the name is that of a snapshot.
std::optional<int64_t> step_of(const std::string& folder_name);
inline std::string temporary_name(const std::string& name, const std::string& run) {
  return name + "." + run + ".tmp";
}
bool is_temporary_of(const std::string& name, const std::string& run);

}  // namespace lockstep::snapshot
