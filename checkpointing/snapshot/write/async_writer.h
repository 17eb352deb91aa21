#pragma once

#include <lockstep/checkpointing/snapshot/save_report.h>
#include <lockstep/checkpointing/snapshot/write/content.h>
#include <lockstep/checkpointing/snapshot/write/run_folder.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lockstep::snapshot {

/// Writes snapshots while training goes on: save() costs this rank the copy of the tensors that it
/// is to write into host memory (kept for the next save; pinned if they are on a GPU).
///
/// A thread of each rank writes; it never speaks to other ranks, so it needs nothing of MPI. Ranks
/// agree, and rank 0 completes the snapshot, when all of them call advance(): a training loop adds
/// is_ready() up over the ranks with what it exchanges anyhow and calls it once all are, or simply
/// calls poll() at each update. At most one save is pending.
/// Ranks: is_ready() and is_pending() are local, all other calls collective.
/// Threads: one.
class AsyncWriter {
 public:
  /// Tries the folder out; see RunFolder. Throws the same Error on every rank.
  AsyncWriter(Communicator ranks, std::string folder, WriterOptions options = {});
  /// Completes what is pending, with all ranks; errors go to stderr. While an exception unwinds it
  /// waits for the own thread only, and what is pending is left to the next start of the run.
  ~AsyncWriter();
  AsyncWriter(const AsyncWriter&) = delete;
  AsyncWriter& operator=(const AsyncWriter&) = delete;

  struct Started {
    /// How the save that was still pending ended, for which this one waited.
    std::optional<SaveReport> previous;
    double waited_seconds = 0;
    double copied_seconds = 0;
  };
  /// Copies the content and starts to write it; the tensors may change once this returns. Throws
  /// the same Error on every rank for content or a step that cannot be saved.
  Started save(const Content& content, const SnapshotId& id,
               const std::optional<MetricValue>& metric = std::nullopt);

  /// The same on every rank.
  bool is_pending() const;
  /// Whether advance() would not block on this rank's own disk. True when nothing is pending.
  bool is_ready() const;
  /// The next phase of what is pending, waiting for this rank's thread if need be. Returns how the
  /// save ended, once it has; errors are in the report and never thrown.
  std::optional<SaveReport> advance();
  /// advance() if every rank is ready, else nothing: one small collective while a save is pending.
  std::optional<SaveReport> poll();
  /// Completes what is pending.
  std::optional<SaveReport> wait();

  /// Its set_metric() may be called while no save is pending.
  RunFolder& folder();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::snapshot
