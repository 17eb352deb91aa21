#pragma once

#include <lockstep/checkpointing/snapshot/save_report.h>
#include <lockstep/checkpointing/snapshot/write/content.h>
#include <lockstep/checkpointing/snapshot/write/run_folder.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace lockstep::snapshot {

/// Writes the snapshots of a run. Each snapshot is written completely or not at all.
///
/// A snapshot is the folder FOLDER/step-000000001200/. If the job is killed at any moment, FOLDER
/// holds the snapshots that were complete before, and perhaps the new one, but never a mix.
/// Ranks: every call is collective, with the same arguments on each rank except for slices and own
/// tensors.
/// Threads: one. A run must have only one writer at a time.
class Writer {
 public:
  /// Tests that the folder can be used; see RunFolder. Throws the same Error on every rank.
  Writer(Communicator ranks, std::string folder, WriterOptions options = {})
      : folder_(std::move(ranks), std::move(folder), std::move(options)) {}

  /// Returns once the snapshot is on the disk. metric: the value that KeepOptions::best compares;
  /// finite.
  /// If any rank cannot save, throws the same Error on every rank. Nothing of the new snapshot
  /// remains, nothing else has changed, and training can continue.
  SaveReport save(const Content& content, const SnapshotId& id,
                  const std::optional<MetricValue>& metric = std::nullopt);

  RunFolder& folder() { return folder_; }

 private:
  RunFolder folder_;
};

}  // namespace lockstep::snapshot
