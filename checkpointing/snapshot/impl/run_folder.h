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

/// The folder that a run's snapshots are written to, seen by all ranks (by those of a node:
/// WriterOptions::node_local).
///
/// Construction tries out everything that saving will need, so that a folder that cannot be
/// written, that ranks do not share, or that another job writes to, is found before training and
/// not at its first save; it also removes what this run left unfinished there. Ranks: all, same
/// arguments. Threads: one. Errors: the same Error on every rank.
class RunFolder {
 public:
  RunFolder(Communicator ranks, const std::string& path, WriterOptions options);

  /// Failures without an exit code of their own have that of snapshots.
  const detail::Agreement& agreement() const { return agreement_; }
  const Communicator& ranks() const { return agreement_.communicator(); }
  const std::string& path() const { return path_; }
  const WriterOptions& options() const { return options_; }
  FileSystem& files() const { return *options_.files(); }
  /// Whether this rank completes snapshots in the folder that it sees: rank 0, or the first rank of
  /// each node.
  bool completes() const {
    return (options_.node_local() ? ranks().local_rank() : ranks().rank()) == 0;
  }
  bool prefers_lower(const MetricValue& metric) const {
    return metric.prefers_lower(options_.keep().lower_is_better(), "KeepOptions::lower_is_better");
  }
  /// Only where completes().
  Rotation& rotation() { return *rotation_; }
  const FolderLock& lock() const { return *lock_; }

  /// The next snapshot of this step: after all that the folder has of it. Collective.
  SnapshotId next_of(int64_t step) const;
  /// Gives the finished snapshot this finite metric, instead of the one that it has, if it has one.
  /// Throws the same Error on every rank if that fails; the snapshot then is as before. Collective.
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
