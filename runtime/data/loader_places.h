#pragma once

#include <lockstep/runtime/data/distributed_sampler.h>
#include <lockstep/runtime/state_archive.h>

#include <cstdint>
#include <memory>
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
  /// The same for a position that a snapshot holds: the loop that comes next is the one that the
  /// saved run was in.
  void resume(SamplerPosition position) {
    seek(position);
    resumed_ = true;
  }
  /// Whether the next loop goes on with one of a saved run, which had run all its `epochs`.
  bool is_behind_loop(int64_t epochs) const {
    return resumed_ && next_.epoch > 0 && next_.epoch % epochs == 0 && next_.batch == 0 &&
           next_.start == 0;
  }
  void begin_loop() { resumed_ = false; }
  /// How often seek() was called: what was loaded ahead is of no use after it.
  int64_t seeks() const { return seeks_; }

 private:
  DistributedSampler sampler_;
  SamplerPosition next_;
  bool resumed_ = false;
  int64_t seeks_ = 0;
};

/// The places of a rank's loaders, in the order in which they were made: a snapshot holds those of
/// the loaders that exist, and a resumed run gives them to its own in that order, also to those
/// that it makes later.
///
/// On as many ranks with the same batch size a loader goes on with the very batch that would have
/// come next. On another number it goes on with the samples of the epoch that no rank has had.
/// Ranks: each keeps its own. Threads: one.
class LoaderPlaces {
 public:
  /// Throws Error (exit code data) if a saved place is waiting for it and is of another dataset.
  void add(const std::shared_ptr<LoaderPlace>& place);

  void visit_state(StateArchive& archive);
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
  };
  static Saved saved(LoaderPlace& place);
  static void visit(StateArchive& archive, size_t number, Saved& saved);
  static std::vector<Saved> all_in(StateArchive& archive);
  static SamplerPosition position_for(const Saved& saved, LoaderPlace& place);
  std::vector<std::shared_ptr<LoaderPlace>> alive();

  std::vector<std::weak_ptr<LoaderPlace>> places_;
  std::vector<Saved> waiting_;  // for loaders that are not made yet; the next one last
};

}  // namespace lockstep
