#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/manifest.h>
#include <lockstep/checkpointing/snapshot/impl/run_folder.h>
#include <lockstep/checkpointing/snapshot/impl/save_plan.h>
#include <lockstep/checkpointing/snapshot/save_report.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/outcome.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::snapshot {

/// The value with all digits, or "none".
std::string text_of_metric(const std::optional<MetricValue>& metric);

/// One snapshot on its way to the disk, in the only order that survives a crash:
///   plan     all ranks   who writes what; nothing on disk yet
///   write    each rank   its files into the temporary folder, each brought to the disk
///   agree    all ranks   one rank's failure ends it for all, and so does what is missing or twice
///                        in the files of all together; then the folder is removed
///   commit   rank 0 *    manifest, folder to disk, one rename, parent to disk; `latest`, rotation
///   finish   all ranks   what rank 0 * has to say
/// * the first rank of each node, if the folder is in the memory of each node.
/// write() and commit() touch the disk and speak to nobody, so a thread may run them; the others
/// are collectives. Between these no two may run at the same time.
class SaveJob {
 public:
  SaveJob(RunFolder& folder, const Content& content, const SnapshotId& id,
          const std::optional<MetricValue>& metric);
  /// Whether the complete snapshot `id` has exactly this content, except for the metric. Reads
  /// every tensor that this rank would write; no save may be pending. Collective.
  static bool matches_complete(RunFolder& folder, const Content& content, const SnapshotId& id);

  /// The files that write() writes. The caller may replace tensors by copies before.
  std::vector<PlannedFile>& planned() { return planned_; }
  void write();
  /// Call if write() or commit() has thrown, for lack of memory. Local.
  void note_failure(const std::exception_ptr& failure);
  /// True on every rank if commit() is next; else finish() is.
  bool agree();
  /// Does nothing unless RunFolder::commits().
  void commit();
  SaveReport finish();

 private:
  std::string final_path() const;
  std::string temporary_path() const;
  void refuse_existing() const;
  /// The outcomes of this phase of all ranks; a failure is written to the report.
  std::vector<detail::Outcome> exchange_outcomes();
  void compare_content(const std::vector<std::string>& lines,
                       const std::optional<MetricValue>& metric);
  /// Returns the records of the files.
  std::string write_files();
  /// Throws Error unless the files of all ranks have all content exactly once.
  void take_records(const std::vector<detail::Outcome>& outcomes);
  void put_in_place();
  std::string name_latest_and_rotate();
  /// Returns what could not be removed and why; empty for success.
  std::string remove_temporary() const;
  void forget_tensors() { planned_.clear(); }

  RunFolder* folder_;
  SnapshotId id_;
  Manifest manifest_;  // with files after agree()
  std::vector<PlannedFile> planned_;
  std::vector<std::pair<std::string, std::string>>
      to_be_saved_;          // section and tensor, of all ranks
  detail::Outcome outcome_;  // of this rank, in the phase that runs
  SaveReport report_;
};

}  // namespace lockstep::snapshot
