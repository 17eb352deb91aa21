#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/manifest.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/impl/run_folder.h>
#include <lockstep/collectives/check.h>

#include <random>
#include <utility>

namespace lockstep::snapshot {
namespace {

std::string made_up_name() {
  std::random_device random;
  std::string name = "run-";
  for (int digit = 0; digit < 16; ++digit) {
    name += "0123456789abcdef"[random() % 16];
  }
  return name;
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// Renames the snapshots after `resumed` to NAME.aside.
void set_aside_later(FileSystem& files, const std::string& folder, const SnapshotId& resumed) {
  bool moved = false;
  for (const SnapshotId& id : ids_in(folder)) {
    if (!(resumed < id)) {
      continue;
    }
    const std::string name = step_folder(id);
    std::string aside = folder + "/" + name + ".aside";
    for (int number = 2; exists(aside); ++number) {
      aside = folder + "/" + name + ".aside" + std::to_string(number);
    }
    files.rename(folder + "/" + name, aside);
    moved = true;
  }
  if (moved) {
    files.sync_folder(folder);
  }
}

}  // namespace

RunFolder::RunFolder(Communicator ranks, const std::string& path, WriterOptions options)
    : agreement_(std::move(ranks), ExitCode::snapshot),
      path_(absolute_path(path)),
      options_(std::move(options)) {
  options_.loaded_from(absolute_path(options_.loaded_from()));
  agreement_.attempt("options of the snapshots in " + path_, [&] {
    options_.validate();
    LOCKSTEP_CHECK(!path_.empty(), "the folder for snapshots is the empty text");
  });
  agree_on_run();
  try_out();
}

void RunFolder::agree_on_run() {
  const bool makes_up = ranks().rank() == 0 && options_.run().empty();
  const std::string mine = makes_up ? made_up_name() : options_.run();
  const std::vector<std::string> names = agreement_.gather("the run's name", [&] { return mine; });
  for (size_t rank = 0; rank < names.size(); ++rank) {
    LOCKSTEP_CHECK(names[rank] == names[0] || names[rank].empty(), "rank ", rank,
                   " names the run \"", names[rank], "\", but rank 0 \"", names[0],
                   "\"; pass the same WriterOptions::run on every rank");
  }
  options_.run(names[0]);
}

void RunFolder::try_out() {
  const std::string doing = "snapshots cannot be written to " + path_;
  const auto probe_of = [&](int rank) {
    return path_ + "/" + temporary_name("probe-" + std::to_string(rank), options_.run());
  };
  agreement_.attempt(doing, [&] {
    if (commits()) {
      const bool is_new = !exists(path_);
      files().make_folder(path_);
      if (is_new) {
        files().sync_folder(parent_of(path_));
      }
      lock_ = std::make_unique<FolderLock>(path_);
      remove_leftovers(files(), path_, options_.run());
      if (options_.resumed()) {
        set_aside_later(files(), path_, *options_.resumed());
      }
      write_file(files(), probe_of(0), "0");
      rotation_ = std::make_unique<Rotation>(path_, options_);
    }
  });
  agreement_.attempt(doing, [&] {
    if (!exists(probe_of(0))) {
      reject(path_,
             options_.node_local()
                 ? "this rank does not see the file that the first rank of its node wrote there; "
                   "the ranks of a node must share the folder"
                 : "this rank does not see the file that rank 0 wrote there; all ranks must share "
                   "the folder, so name one on a file system that all nodes mount");
    }
    if (!commits()) {
      write_file(files(), probe_of(ranks().rank()), "0");
      files().remove_file(probe_of(ranks().rank()));
    }
  });
  agreement_.attempt(doing, [&] {
    if (commits()) {
      files().rename(probe_of(0), probe_of(ranks().size()));
      files().remove_file(probe_of(ranks().size()));
      files().sync_folder(path_);
    }
  });
}

SnapshotId RunFolder::next_of(int64_t step) const {
  const std::vector<std::string> numbers =
      agreement_.gather("looking for snapshots in " + path_, [&] {
        int64_t number = 0;
        for (const SnapshotId& id : commits() ? ids_in(path_) : std::vector<SnapshotId>()) {
          number = id.step == step ? id.number + 1 : number;
        }
        return std::to_string(number);
      });
  return {step, std::stoll(numbers[0])};
}

void RunFolder::set_metric(const SnapshotId& id, const MetricValue& metric) {
  const std::string folder = path_ + "/" + step_folder(id);
  agreement_.attempt("saving the metric of " + folder, [&] {
    if (!commits()) {
      return;
    }
    lock_->require_held();
    const std::string path = folder + "/" + kManifestName;
    Manifest manifest = [&] {
      const MappedFile file(path);
      return Manifest::parse(file.text(), path);
    }();
    manifest.metric = metric.value;
    manifest.lower_is_better = prefers_lower(metric);
    write_file(files(), temporary_name(path, options_.run()), manifest.render());
    files().rename(temporary_name(path, options_.run()), path);
    files().sync_folder(folder);
    rotation_->note(id, manifest);
  });
}

}  // namespace lockstep::snapshot
