#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// The names in the folder of a run. A snapshot is step-000000001200/ with a manifest.json; a
/// second one of the same step is step-000000001200.1/. A name that ends in .<run>.tmp is
/// unfinished and belongs to that run. `lock` names the job that writes to the folder.
constexpr char kManifestName[] = "manifest.json";
constexpr char kSignatureName[] = "manifest.signature";  // of snapshots in memory
constexpr char kLatestName[] = "latest";
constexpr char kLockName[] = "lock";

/// Identifies a snapshot of a run. The first of a step has the number 0. If the state changes
/// without a step and is saved again, that snapshot has the next number and counts in place of
/// those before it.
struct SnapshotId {
  int64_t step;
  int64_t number;

  SnapshotId(int64_t step = 0, int64_t number = 0)  // NOLINT(google-explicit-constructor)
      : step(step), number(number) {}
};
/// True if `a` is earlier.
inline bool operator<(const SnapshotId& a, const SnapshotId& b) {
  return a.step != b.step ? a.step < b.step : a.number < b.number;
}

std::string step_folder(const SnapshotId& id);
/// Empty unless the name is that of a snapshot.
std::optional<SnapshotId> id_of(const std::string& folder_name);
std::optional<int64_t> step_of(const std::string& folder_name);
/// The snapshots in the folder, the earliest first.
std::vector<SnapshotId> ids_in(const std::string& folder);
inline std::string temporary_name(const std::string& name, const std::string& run) {
  return name + "." + run + ".tmp";
}
bool is_temporary_of(const std::string& name, const std::string& run);

}  // namespace lockstep::snapshot
