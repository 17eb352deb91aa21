#include <lockstep/checkpointing/snapshot/impl/manifest.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/impl/rotation.h>
#include <lockstep/collectives/exceptions.h>

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

namespace lockstep::snapshot {
namespace {

bool is_same_folder(const std::string& a, const std::string& b) {
  struct stat first {};
  struct stat second {};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

Rotation::Rotation(std::string folder, const WriterOptions& options)
    : folder_(std::move(folder)), options_(options) {
  for (const SnapshotId& id : ids_in(folder_)) {
    try {
      const MappedFile file(folder_ + "/" + step_folder(id) + "/" + kManifestName);
      const Manifest manifest = Manifest::parse(file.text(), file.path());
      if (manifest.run == options_.run() && manifest.step == id.step) {
        note(id, manifest);
      }
    } catch (const Error&) {
      continue;  // unreadable snapshots are never removed
    }
  }
}

void Rotation::note(const SnapshotId& id, const Manifest& manifest) {
  metrics_[id] = manifest.metric;
  if (manifest.metric) {
    lower_is_better_ = manifest.lower_is_better;
  }
}

bool Rotation::is_loaded_from(const SnapshotId& id) const {
  return !options_.loaded_from().empty() &&
         is_same_folder(folder_ + "/" + step_folder(id), options_.loaded_from());
}

/// Of each step the last snapshot counts; for `best` the last with a metric, since later ones may
/// have other weights.
std::vector<SnapshotId> Rotation::not_to_be_kept(const SnapshotId& newest) const {
  const KeepOptions& keep = options_.keep();
  std::set<SnapshotId> kept = {newest};
  std::set<SnapshotId> last_of_steps;
  std::set<int64_t> steps;
  std::set<int64_t> steps_with_metric;
  std::vector<std::pair<double, SnapshotId>> by_metric;
  for (auto entry = metrics_.rbegin(); entry != metrics_.rend(); ++entry) {
    const auto& [id, metric] = *entry;
    if (steps.insert(id.step).second) {
      last_of_steps.insert(id);
      if (static_cast<int64_t>(kept.size()) < keep.last() && id.step < newest.step) {
        kept.insert(id);
      }
    }
    if (metric && steps_with_metric.insert(id.step).second) {
      by_metric.emplace_back(lower_is_better_ ? *metric : -*metric, id);
    }
  }
  std::sort(by_metric.begin(), by_metric.end());
  by_metric.resize(std::min(by_metric.size(), static_cast<size_t>(keep.best())));
  for (const auto& [metric, id] : by_metric) {
    kept.insert(id);
  }
  std::vector<SnapshotId> others;
  for (const auto& [id, metric] : metrics_) {
    const bool is_multiple =
        keep.every() > 0 && id.step % keep.every() == 0 && last_of_steps.count(id) > 0;
    if (kept.count(id) == 0 && !is_multiple && !is_loaded_from(id)) {
      others.push_back(id);
    }
  }
  return others;
}

/// Renames the folder, so that it is no snapshot any more even if a crash leaves files behind.
void Rotation::hide(const SnapshotId& id) {
  const std::string path = folder_ + "/" + step_folder(id);
  options_.files()->rename(path, temporary_name(path, options_.run()));
}

std::vector<std::string> Rotation::committed(const SnapshotId& id, const Manifest& manifest) {
  note(id, manifest);
  std::vector<std::string> warnings;
  const auto attempt = [&](const std::function<void()>& action) {
    try {
      action();
      return true;
    } catch (const std::exception& error) {
      warnings.push_back(std::string("an old snapshot was not removed: ") + error.what());
      return false;
    }
  };
  std::vector<SnapshotId> hidden;
  for (const SnapshotId& old : not_to_be_kept(id)) {
    if (!exists(folder_ + "/" + step_folder(old))) {
      metrics_.erase(old);  // another program has removed it
    } else if (attempt([&] { hide(old); })) {
      metrics_.erase(old);
      hidden.push_back(old);
    }
  }
  if (!hidden.empty() && attempt([&] { options_.files()->sync_folder(folder_); })) {
    for (const std::string& reason : remove_leftovers(*options_.files(), folder_, options_.run())) {
      warnings.push_back("an old snapshot was not removed: " + reason);
    }
  }
  return warnings;
}

std::vector<std::string> remove_leftovers(FileSystem& files, const std::string& folder,
                                          const std::string& run) {
  std::vector<std::string> reasons;
  for (const std::string& name : names_in(folder)) {
    if (!is_temporary_of(name, run)) {
      continue;
    }
    const std::string path = folder + "/" + name;
    try {
      if (is_folder(path)) {
        remove_folder_of_files(files, path);
      } else {
        files.remove_file(path);
      }
    } catch (const Error& error) {
      reasons.emplace_back(error.what());
    }
  }
  return reasons;
}

}  // namespace lockstep::snapshot
