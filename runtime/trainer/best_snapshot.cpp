#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/best_snapshot.h>
#include <lockstep/runtime/saving/impl/snapshot_search.h>
#include <lockstep/runtime/trainer.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace lockstep {
namespace {

/// The snapshots of `folder` that have a metric, the best first; of several of one update the last.
/// Adds to `notes` why others cannot be read.
std::vector<Snapshot> ranked(const std::string& folder, std::vector<std::string>& notes) {
  std::map<int64_t, Snapshot> of_steps;
  for (const snapshot::SnapshotId& id : snapshot::ids_in(folder)) {
    try {
      Snapshot saved(folder + "/" + snapshot::step_folder(id));
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

std::string best_snapshot(const std::string& given) {
  const std::string folder = snapshot::absolute_path(given);
  std::vector<std::string> notes;
  for (const Snapshot& saved : ranked(folder, notes)) {
    try {
      saved.verify();
      return saved.path();
    } catch (const Error& error) {
      notes.emplace_back(error.what());
    }
  }
  throw Error("no snapshot in " + folder + " can be used that has a metric; pass one to " +
                  "Trainer::save(metric), and keep it with KeepOptions::best" +
                  detail::joined(notes),
              ExitCode::snapshot);
}

std::string load_best(Trainer& trainer, const std::string& folder) {
  trainer.finish_saving();
  const Runtime& runtime = trainer.runtime();
  const std::string path = detail::Agreement(runtime.control(), ExitCode::snapshot)
                               .gather("looking for the best snapshot", [&] {
                                 return runtime.is_main() ? best_snapshot(folder) : std::string();
                               })[0];
  trainer.load_weights(path);
  return path;
}

}  // namespace lockstep
