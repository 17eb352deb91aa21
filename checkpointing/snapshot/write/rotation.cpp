#include <lockstep/checkpointing/snapshot/format/folder_names.h>
#include <lockstep/checkpointing/snapshot/manifest.h>
#include <lockstep/checkpointing/snapshot/mapped_file.h>
#include <lockstep/checkpointing/snapshot/write/rotation.h>
#include <lockstep/collectives/error.h>

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
  for (const std::string& name : names_in(folder_)) {
    const auto step = step_of(name);
    if (!step) {
      continue;
    }
    try {
      const MappedFile file(folder_ + "/" + name + "/" + kManifestName);
      const Manifest manifest = Manifest::parse(file.text(), file.path());
      if (manifest.run == options_.run() && manifest.step == *step) {
        note(manifest);
      }
    } catch (const Error&) {
      continue;  // unreadable: not ours to judge, and never removed
    }
  }
}

void Rotation::note(const Manifest& manifest) {
  metrics_[manifest.step] = manifest.metric;
  if (manifest.metric) {
    lower_is_better_ = manifest.lower_is_better;
  }
}

bool Rotation::is_loaded_from(int64_t step) const {
  return !options_.loaded_from().empty() &&
         is_same_folder(folder_ + "/" + step_folder(step), options_.loaded_from());
}

std::vector<int64_t> Rotation::not_to_be_kept(int64_t newest) const {
  const KeepOptions& keep = options_.keep();
  std::set<int64_t> kept = {newest};
  std::vector<std::pair<double, int64_t>> by_metric;
  for (auto entry = metrics_.rbegin(); entry != metrics_.rend(); ++entry) {
    const auto& [step, metric] = *entry;
    if (static_cast<int64_t>(kept.size()) < keep.last() && step < newest) {
      kept.insert(step);
    }
    if (metric) {
      by_metric.emplace_back(lower_is_better_ ? *metric : -*metric, step);
    }
  }
  std::sort(by_metric.begin(), by_metric.end());
  by_metric.resize(std::min(by_metric.size(), static_cast<size_t>(keep.best())));
  for (const auto& [metric, step] : by_metric) {
    kept.insert(step);
  }
  std::vector<int64_t> others;
  for (const auto& [step, metric] : metrics_) {
    const bool is_multiple = keep.every() > 0 && step % keep.every() == 0;
    if (kept.count(step) == 0 && !is_multiple && !is_loaded_from(step)) {
      others.push_back(step);
    }
  }
  return others;
}

/// From here on it is no snapshot any more, however much of it a crash leaves behind.
void Rotation::hide(int64_t step) {
  const std::string path = folder_ + "/" + step_folder(step);
  options_.files()->rename(path, temporary_name(path, options_.run()));
}

std::vector<std::string> Rotation::committed(const Manifest& manifest) {
  note(manifest);
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
  std::vector<int64_t> hidden;
  for (const int64_t old : not_to_be_kept(manifest.step)) {
    if (!exists(folder_ + "/" + step_folder(old))) {
      metrics_.erase(old);  // somebody else has removed it
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
