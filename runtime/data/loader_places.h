#pragma once

#include <lockstep/runtime/data/distributed_sampler.h>
#include <lockstep/runtime/state_archive.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Where one loader is, and how its ranks share the dataset. Threads: one.
class LoaderPlace {
 public:
  explicit LoaderPlace(DistributedSampler sampler) : sampler_(std::move(sampler)) {}

  DistributedSampler& sampler() { return sampler_; }
  SamplerPosition next() const { return next_; }
  void step() { next_ = sampler_.after(next_); }
  /// Throws Error if there is no such batch.
  void seek(SamplerPosition position) {
    sampler_.check(position);
    next_ = position;
    resumed_ = false;
    ++seeks_;
  }
  /// The same for a position that a snapshot holds: the loop that comes next over a loader that
  /// `trains` is the one that the saved run was in.
  void resume(SamplerPosition position, bool trains) {
    seek(position);
    resumed_ = trains;
    trains_ = trains;
  }
  /// Whether the next loop goes on with one of a saved run, which had run all its `epochs`.
  bool is_behind_loop(int64_t epochs) const {
    return resumed_ && next_.epoch > 0 && next_.epoch % epochs == 0 && next_.batch == 0 &&
           next_.start == 0;
  }
  void begin_loop() { resumed_ = false; }
  /// Whether the loop has a batch in hand.
  void hold(bool batch) { in_hand_ = batch; }
  /// A Trainer steps: with a batch of this loader, if one is in hand.
  void note_step() { trains_ = trains_ || in_hand_; }
  /// Whether a Trainer stepped with one of its batches; others validate.
  bool trains() const { return trains_; }
  /// How often seek() was called: what was loaded ahead is of no use after it.
  int64_t seeks() const { return seeks_; }

 private:
  DistributedSampler sampler_;
  SamplerPosition next_;
  bool resumed_ = false;
  bool in_hand_ = false;
  bool trains_ = false;
  int64_t seeks_ = 0;
};

/// The places of a rank's loaders, in the order in which they were made: a snapshot holds those of
/// the loaders that exist, and a resumed run gives them to its own in that order, also to those
/// that it makes later.
///
/// On as many ranks with the same batch size a loader goes on with the very batch that would have
/// come next. On another number it goes on with the samples of the epoch that no rank has had;
/// where each rank has samples of its own, nobody knows which those are, so that epoch begins
/// again. Ranks: each keeps its own. Threads: one.
class LoaderPlaces {
 public:
  /// Throws Error (exit code data) if a saved place is waiting for it and is of another dataset.
  void add(const std::shared_ptr<LoaderPlace>& place);

  void visit_state(StateArchive& archive);
  /// What differs from the run that saved the places that were loaded, a line each.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  /// Before a Trainer's micro-batch.
  void note_step();
  /// Throws Error (exit code data) if loading from this archive will, because a dataset has another
  /// size, or is shuffled in another order. Nothing moves.
  void check(StateArchive& archive);

 private:
  struct Saved {
    SamplerPosition next;
    int64_t taken = 0;  // samples of the epoch, by all ranks
    int64_t size = 0;
    int64_t ranks = 0;
    int64_t batch_size = 0;
    int64_t drops_last = 0;
    int64_t shuffles = 0;
    int64_t seed = 0;
    int64_t trains = 1;        // in snapshots that do not say so, all do
    int64_t sizes_digest = 0;  // 0: ranks share one dataset
  };
  static Saved saved(LoaderPlace& place);
  static void visit(StateArchive& archive, size_t number, Saved& saved);
  static std::vector<Saved> all_in(StateArchive& archive);
  static SamplerPosition position_for(const Saved& saved, LoaderPlace& place);
  static bool begins_again(const Saved& saved, LoaderPlace& place);
  void resume(const Saved& saved, LoaderPlace& place);
  std::vector<std::shared_ptr<LoaderPlace>> alive();

  std::vector<std::weak_ptr<LoaderPlace>> places_;
  std::vector<Saved> waiting_;  // for loaders that are not made yet; the next one last
  std::vector<std::string> notes_;
};

}  // namespace lockstep
