#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/folder_lock.h>
#include <lockstep/checkpointing/snapshot/impl/rotation.h>
#include <lockstep/checkpointing/snapshot/impl/writer_options.h>
#include <lockstep/checkpointing/snapshot/metric_value.h>
#include <lockstep/collectives/impl/agreement.h>

#include <memory>
#include <string>

namespace lockstep::snapshot {

/// The folder of a run's snapshots, shared by all ranks (by the ranks of a node with
/// WriterOptions::node_local).
///
/// The constructor tests everything that saving needs, so a folder that cannot be written, that
/// ranks do not share, or that another job uses is found before training. It also removes
/// unfinished files of this run. Ranks: all, same arguments. Threads: one. Errors: the same Error
/// on every rank.
class RunFolder {
 public:
  RunFolder(Communicator ranks, const std::string& path, WriterOptions options);

  /// Exceptions without an exit code get the exit code snapshot.
  const detail::Agreement& agreement() const { return agreement_; }
  const Communicator& ranks() const { return agreement_.communicator(); }
  const std::string& path() const { return path_; }
  const WriterOptions& options() const { return options_; }
  FileSystem& files() const { return *options_.files(); }
  /// Whether this rank commits snapshots: rank 0, or the first rank of each node.
  bool commits() const {
    return (options_.node_local() ? ranks().local_rank() : ranks().rank()) == 0;
  }
  bool prefers_lower(const MetricValue& metric) const {
    return metric.prefers_lower(options_.keep().lower_is_better(), "KeepOptions::lower_is_better");
  }
  /// Only if commits().
  Rotation& rotation() { return *rotation_; }
  const FolderLock& lock() const { return *lock_; }

  /// The id of a new snapshot of this step, after those in the folder. Collective.
  SnapshotId next_of(int64_t step) const;
  /// Sets or replaces the metric (finite) of a complete snapshot. Collective. If it fails, the
  /// snapshot is unchanged and every rank throws the same Error.
  void set_metric(const SnapshotId& id, const MetricValue& metric);

 private:
  void agree_on_run();
  void try_out();

  detail::Agreement agreement_;
  std::string path_;
  WriterOptions options_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<Rotation> rotation_;
};

}  // namespace lockstep::snapshot
