#pragma once

#include <lockstep/checkpointing/snapshot/content.h>
#include <lockstep/checkpointing/snapshot/run_folder.h>
#include <lockstep/checkpointing/snapshot/save_report.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace lockstep::snapshot {

/// Writes the snapshots of a run, each of them completely or not at all.
///
/// A snapshot is FOLDER/step-000000001200/. Killed at any moment, the folder holds the snapshots
/// that were complete before, and perhaps the new one, never a mix.
/// Ranks: every call is collective, with the same arguments but for slices and own tensors.
/// Threads: one. One writer of a run at a time.
class Writer {
 public:
  /// Tries the folder out; see RunFolder. Throws the same Error on every rank.
  Writer(Communicator ranks, std::string folder, WriterOptions options = {})
      : folder_(std::move(ranks), std::move(folder), std::move(options)) {}

  /// Returns once the snapshot is on the disk. `metric`: what KeepOptions::best compares; finite.
  /// Throws the same Error on every rank when it could not be saved on any: nothing of it is left,
  /// nothing else has changed, and training can go on.
  SaveReport save(const Content& content, int64_t step,
                  std::optional<double> metric = std::nullopt);

  /// The run's name, to be passed on when it is resumed.
  const std::string& run() const { return folder_.options().run(); }

 private:
  RunFolder folder_;
};

}  // namespace lockstep::snapshot
