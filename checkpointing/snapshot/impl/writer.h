#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/content.h>
#include <lockstep/checkpointing/snapshot/impl/run_folder.h>
#include <lockstep/checkpointing/snapshot/save_report.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lockstep::snapshot {

/// Writes the snapshots of a run. Each snapshot is written completely or not at all.
///
/// A snapshot is the folder FOLDER/step-000000001200/. If the job is killed at any moment, FOLDER
/// holds the snapshots that were complete before, and perhaps the new one, but never a mix.
///
/// save() waits for the disk. start() returns once this rank's tensors are copied to host memory
/// (which is reused; pinned for tensors on a GPU); a thread of each rank then writes the copies,
/// without any collective. In advance() the ranks agree, and the thread starts again on every rank:
/// that of rank 0 (in node memory: of the first rank of each node) commits the snapshot, the others
/// have nothing to do. The next advance() ends the save. Call it once is_phase_done() is true on
/// all ranks (sum the flag in a collective of the loop), or call poll() each update. At most one
/// save is pending.
/// Ranks: is_phase_done() and is_pending() are local, all other calls collective, with the same
/// arguments on each rank except for slices and own tensors.
/// Threads: one. A run must have only one writer at a time.
class Writer {
 public:
  /// Tests that the folder can be used; see RunFolder. Throws the same Error on every rank.
  Writer(Communicator ranks, std::string folder, WriterOptions options = {});
  /// Completes a pending save (collective); errors go to stderr. If an exception unwinds the stack,
  /// it only waits for the thread; the next start of the run removes the unfinished files.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Returns once the snapshot is on the disk; no save may be pending. metric: the value that
  /// KeepOptions::best compares; finite.
  /// If any rank cannot save, throws the same Error on every rank. Nothing of the new snapshot
  /// remains, nothing else has changed, and training can continue.
  SaveReport save(const Content& content, const SnapshotId& id,
                  const std::optional<MetricValue>& metric = std::nullopt);

  struct Started {
    /// The report of a save that was still pending.
    std::optional<SaveReport> previous;
    double waited_seconds = 0;
    double copied_seconds = 0;
  };
  /// Copies the content and starts to write it; the tensors may change once this returns. Throws
  /// the same Error on every rank for content or a step that cannot be saved.
  Started start(const Content& content, const SnapshotId& id,
                const std::optional<MetricValue>& metric = std::nullopt);

  /// The same on every rank.
  bool is_pending() const;
  /// Whether a save is pending, and this rank's thread of its present phase is done.
  bool is_phase_done() const;
  /// Runs the next phase of the pending save; waits for this rank's thread if necessary. Returns
  /// the report once the save has ended. Errors are in the report and never thrown.
  std::optional<SaveReport> advance();
  /// Calls advance() if every rank is ready. One small collective while a save is pending.
  std::optional<SaveReport> poll();
  /// Completes a pending save.
  std::optional<SaveReport> wait();

  /// Its set_metric() may be called while no save is pending.
  RunFolder& folder();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::snapshot
