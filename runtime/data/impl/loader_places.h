#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/runtime/data/impl/state_archive.h>
#include <lockstep/runtime/distributed_sampler.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The position of one loader, and how its ranks share the dataset. Threads: one.
class LoaderPlace {
 public:
  explicit LoaderPlace(DistributedSampler sampler) : sampler_(std::move(sampler)) {}

  DistributedSampler& sampler() { return sampler_; }
  SamplerPosition next() const { return next_; }
  void step() {
    current_ = next_;
    next_ = sampler_.after(next_);
  }
  /// Throws Error if there is no batch at `position`.
  void seek(SamplerPosition position) {
    sampler_.check(position);
    next_ = position;
    resumed_ = false;
    in_hand_ = false;
    ++seeks_;
  }
  /// Seeks to a position from a snapshot. If the loader `trains`, its next loop continues the loop
  /// of the saved run.
  void resume(SamplerPosition position, bool trains) {
    seek(position);
    resumed_ = trains;
    trains_ = trains;
  }
  /// The part of the state that seek() and steps change.
  struct Mark {
    SamplerPosition next;
    bool resumed;
    bool trains;
  };
  Mark mark() const { return {next_, resumed_, trains_}; }
  void return_to(const Mark& mark) {
    seek(mark.next);
    resumed_ = mark.resumed;
    trains_ = mark.trains;
  }
  /// True if the next loop continues a loop of a saved run that had completed all its `epochs`.
  bool is_behind_loop(int64_t epochs) const {
    return resumed_ && next_.epoch > 0 && next_.epoch % epochs == 0 && next_.batch == 0 &&
           next_.start == 0;
  }
  void begin_loop() { resumed_ = false; }
  /// Notes whether the loop has a current batch.
  void hold(bool batch) { in_hand_ = batch; }
  /// Notes that the loop waited for a batch.
  void add_wait(double seconds) { waited_ += seconds; }
  /// Called before each step of a Trainer: marks the loader as training if it has a current batch.
  /// Returns the seconds that its loop waited for batches since the last call.
  double note_step() {
    trains_ = trains_ || in_hand_;
    return in_hand_ ? std::exchange(waited_, 0.0) : 0.0;
  }
  /// True if a Trainer made a step with a batch of this loader. Other loaders are for validation.
  bool trains() const { return trains_; }
  /// Throws Error if the loop's batch does not belong to micro-batch `micro_batch` of an update of
  /// `leaves` leaves.
  void require_leaf(int64_t leaves, int64_t micro_batch) const;
  /// Number of seek() calls. Batches that were loaded ahead before a seek() are discarded.
  int64_t seeks() const { return seeks_; }

 private:
  DistributedSampler sampler_;
  SamplerPosition next_;
  SamplerPosition current_;  // of the batch that the loop has
  bool resumed_ = false;
  bool in_hand_ = false;
  bool trains_ = false;
  double waited_ = 0.0;  // seconds since the last step of a Trainer
  int64_t seeks_ = 0;
};

/// The positions of a rank's loaders, in the order in which the loaders were made. A snapshot holds
/// the positions of the loaders that exist. A resumed run assigns them to its loaders in that
/// order, including loaders that it makes later.
///
/// With the same number of ranks and the same batch size, a loader continues with exactly the batch
/// that would have come next. Otherwise it continues with the samples of the epoch that no rank has
/// used yet. A loader that deals samples to leaves continues with the next update on any number of
/// ranks. If ranks have different data (local loaders), the samples are not known, so the epoch
/// starts again. Ranks: each rank keeps its own. Threads: one.
class LoaderPlaces {
 public:
  /// Adds a loader and gives it the saved position that waits for it, if any. Throws Error (exit
  /// code data) if that position belongs to another dataset.
  void add(const std::shared_ptr<LoaderPlace>& place);

  void visit_state(StateArchive& archive);
  /// Differences from the run that saved the loaded positions, one line each.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  /// Called before each micro-batch of a Trainer. Returns the seconds that loops over the loaders
  /// that train waited for batches since the last call.
  double note_step();
  /// LoaderPlace::require_leaf() for each loader.
  void require_leaf(int64_t leaves, int64_t micro_batch) const;
  /// Throws Error (exit code data) if loading from this archive would fail, because a dataset has
  /// another size or is shuffled in another order. Changes nothing.
  void check(StateArchive& archive);

 private:
  struct Saved {
    SamplerPosition next;
    int64_t taken = 0;  // samples of the epoch that all ranks have used
    int64_t size = 0;
    int64_t ranks = 0;
    int64_t batch_size = 0;
    int64_t drops_last = 0;
    int64_t shuffles = 0;
    int64_t seed = 0;
    int64_t trains = 1;        // 1 where a snapshot does not store it
    int64_t sizes_digest = 0;  // 0: ranks share one dataset
    int64_t weights = 0;       // digest; 0: each sample comes once
    int64_t leaves = 0;        // 0: samples are dealt to ranks
  };
  static Saved saved(LoaderPlace& place);
  static void visit(StateArchive& archive, size_t number, Saved& saved);
  static std::vector<Saved> all_in(StateArchive& archive);
  static SamplerPosition position_for(const Saved& saved, LoaderPlace& place);
  static bool begins_again(const Saved& saved, LoaderPlace& place);
  void resume(const Saved& saved, LoaderPlace& place);
  std::vector<std::shared_ptr<LoaderPlace>> alive();

  std::vector<std::weak_ptr<LoaderPlace>> places_;
  std::vector<Saved> waiting_;  // for loaders that are made later, in reverse order
  std::vector<std::string> notes_;
};

}  // namespace lockstep
