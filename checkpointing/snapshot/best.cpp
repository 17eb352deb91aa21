#include <lockstep/checkpointing/snapshot/impl/best.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace lockstep::snapshot {
namespace {

/// The snapshots of `folder` that have a metric, the best first; of several of one update the last.
/// Adds to `notes` why others cannot be read.
std::vector<Snapshot> ranked(const std::string& folder, std::vector<std::string>& notes) {
  std::map<int64_t, Snapshot> of_steps;
  for (const SnapshotId& id : ids_in(folder)) {
    try {
      Snapshot saved(folder + "/" + step_folder(id));
      if (saved.manifest().metric) {
        of_steps.insert_or_assign(id.step, std::move(saved));
      }
    } catch (const Error& error) {
      notes.emplace_back(error.what());
    }
  }
  std::vector<Snapshot> found;
  for (auto& [step, saved] : of_steps) {
    found.push_back(std::move(saved));
  }
  const bool lower_is_better = found.empty() || found.back().manifest().lower_is_better;
  std::stable_sort(found.begin(), found.end(), [&](const Snapshot& a, const Snapshot& b) {
    const double first = *a.manifest().metric;
    const double second = *b.manifest().metric;
    return lower_is_better ? first < second : first > second;
  });
  return found;
}

}  // namespace

std::string find_best(const std::string& given) {
  const std::string folder = absolute_path(given);
  std::vector<std::string> notes;
  for (const Snapshot& saved : ranked(folder, notes)) {
    try {
      saved.verify();
      return saved.path();
    } catch (const Error& error) {
      notes.emplace_back(error.what());
    }
  }
  std::string lines;
  for (const std::string& note : notes) {
    lines += "\n  " + note;
  }
  throw Error("no snapshot in " + folder + " can be used that has a metric; pass one to " +
                  "Trainer::save(metric), and keep it with KeepOptions::best" + lines,
              ExitCode::snapshot);
}

}  // namespace lockstep::snapshot
