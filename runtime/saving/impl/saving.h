#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/memory_snapshots.h>
#include <lockstep/checkpointing/snapshot/impl/writer.h>
#include <lockstep/checkpointing/snapshot/snapshot_options.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/resume_report.h>
#include <lockstep/runtime/saving/impl/training_state.h>

#include <memory>
#include <optional>
#include <string>

namespace lockstep::detail {

/// Writes, completes and resumes the snapshots of a Trainer, on disk and in node memory. Ranks:
/// every call but is_phase_done() is collective. Threads: one.
class Saving {
 public:
  /// If the options name a folder, tests that it can be used.
  Saving(TrainingState state, Communicator control, SnapshotOptions options);
  /// Completes pending saves, except while an exception unwinds.
  ~Saving();
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;

  /// Saves the state after `update`; see Trainer::save().
  void save(int64_t update, std::optional<MetricValue> metric);
  /// Call it when weights changed without an update: the metric of the last save() is void then.
  void forget_metric() {
    if (saved_) {
      saved_->metric.reset();
    }
  }
  /// Counts the end of a window. True if a snapshot in memory is due; the same on every rank.
  bool is_memory_due();
  /// Saves the state after `update` in node memory; see SnapshotOptions::memory_every.
  void save_in_memory(int64_t update);
  ResumeReport resume(const std::string& path);
  snapshot::LoadReport load_weights(const std::string& path, const snapshot::LoadOptions& options);

  /// Throws Error if the folder holds snapshots of another run. Call it before the first update.
  void require_own_folder();

  /// The state that is saved.
  TrainingState& state() { return state_; }

  /// Votes::phase_done of this rank: a save is pending, and this rank's thread (or chunk) of the
  /// present phase is done, on disk and in memory. Local.
  bool is_phase_done() const;
  /// Runs the next phase of pending saves. Call it once every rank has done its phase.
  void advance();
  /// Completes pending saves.
  void finish();
  /// Result of the last save that ended, returned once; errors are on rank 0's stderr too.
  std::optional<snapshot::SaveReport> take_ended() { return std::exchange(ended_, std::nullopt); }

 private:
  /// A snapshot that is complete or pending.
  struct Saved {
    snapshot::SnapshotId id;
    std::optional<MetricValue> metric;
  };
  bool newest_is_of(int64_t update) const { return saved_ && saved_->id.step == update; }
  /// Completes the save of `update`, if it is the newest. False if it is not, or has failed.
  bool completes_save_of(int64_t update);
  /// Adds `metric` to the snapshot of the newest save, if it is new.
  void save_metric(const std::optional<MetricValue>& metric);
  /// Throws Error on every rank for a model that no snapshot can hold.
  void require_storable();
  void open_writers(const std::string& folder, snapshot::WriterOptions options);
  bool may_write_to(const std::string& folder) const {
    return options_.folder().empty() || options_.folder() == folder;
  }
  /// The newest snapshot, on the disk or in node memory; none if the run starts from the beginning.
  struct Source {
    std::optional<Snapshot> snapshot;
    bool is_in_memory = false;
  };
  Source choose_source(const std::string& path, std::vector<std::string>& notes);
  /// If a rank cannot load it, throws before anything changes.
  void load(const Snapshot& saved, ResumeReport& report);
  /// The run goes on in the folder that it resumed from, unless the options name another.
  void reopen_writers(const Snapshot& saved, const std::string& run_folder, bool is_in_memory);
  void note_end(std::optional<snapshot::SaveReport> report);
  void note_memory_end(const std::optional<snapshot::SaveReport>& report);
  void stop_saving_in_memory(const std::string& reason);
  void drop_memory();
  /// On rank 0's stderr.
  void print(const std::vector<std::string>& lines) const;
  bool is_disk_pending() const { return writer_ && writer_->is_pending(); }
  bool is_memory_pending() const { return memory_ && memory_->is_pending(); }
  bool prints() const { return agreement_.communicator().rank() == 0; }

  TrainingState state_;
  Agreement agreement_;  // its default exit code is that of snapshots
  SnapshotOptions options_;
  std::string folder_;                 // of the snapshots; empty: none is known
  bool is_own_folder_ = false;         // this run resumed from it, or it had no snapshots
  std::optional<Saved> saved_;         // the newest
  std::optional<Saved> saved_before_;  // the newest one if saving `saved_` fails
  std::optional<snapshot::SaveReport> ended_;
  std::unique_ptr<snapshot::Writer> writer_;           // to folder_
  std::unique_ptr<snapshot::MemorySnapshots> memory_;  // of folder_; null without memory_every
  int64_t windows_ = 0;                                // since the last snapshot in memory was due
};

}  // namespace lockstep::detail
