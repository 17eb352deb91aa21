#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// A position in the stream of batches: the next batch. Saved in snapshots; the same on every rank.
struct SamplerPosition {
  int64_t epoch = 0;
  int64_t batch = 0;
  /// Number of samples at the beginning of this epoch's order that are already used; batch 0 starts
  /// after them. Not 0 only in an epoch that began with another number of ranks or batch size.
  int64_t start = 0;

  bool operator==(const SamplerPosition& other) const {
    return epoch == other.epoch && batch == other.batch && start == other.start;
  }
  bool operator!=(const SamplerPosition& other) const { return !(*this == other); }
};

/// Divides each epoch among the ranks: this rank's share, in batches of sample indices.
///
/// The order of an epoch is a pure function of (size, seed, epoch), the same with every compiler
/// and library, and differs between epochs. Rank r takes the positions r, r + ranks, ... of the
/// order. So each sample is used exactly once per epoch, and shares differ by at most one sample.
/// Every rank makes the same number of batches, none of them empty: ceil(largest share /
/// batch_size), but at most the number of samples in the smallest share. All batches but the last
/// have batch_size samples; the last has the rest (with batch_size 1 possibly 2). A rank whose last
/// batch would be empty moves one sample into it. With drop_last every batch has batch_size
/// samples, and the remaining samples of the epoch are left out.
///
/// With `weights`, the order of an epoch has `size` positions, each a sample that is drawn with
/// these relative weights, with replacement: a pure function of (weights, seed, epoch). The ranks
/// divide the positions as above. A sample that is drawn twice in an epoch has the same random
/// numbers each time (SampleRandom).
///
/// local() makes a sampler for ranks that have different data. Each rank takes all of its samples
/// once per epoch, in an order that is independent of other ranks. Every rank makes the same number
/// of batches: as many as the rank with the most samples needs. A rank that would need fewer
/// spreads its samples evenly over this number, so its batches are smaller.
///
/// `leaves`, if not 0, is the number of micro-batches of an update on all ranks together. The epoch
/// is then divided among the leaves as it would be among that many ranks, and rank r takes leaves
/// r * (leaves / ranks), ... one after another: leaves / ranks batches for each update. So the
/// samples of a leaf do not depend on the number of ranks.
///
/// Ranks: each rank makes its sampler with the same arguments except `rank`; no communication.
/// Threads: one at a time.
/// Throws Error if size < ranks (with drop_last: size < ranks * batch_size), where leaves, if
/// given, take the place of ranks; for arguments out of range; and for weights that are not one for
/// each sample, finite, >= 0 and not all 0.
class DistributedSampler {
 public:
  DistributedSampler(size_t size, int rank, int ranks, uint64_t seed, bool shuffle = true,
                     int64_t batch_size = 1, bool drop_last = false,
                     std::vector<double> weights = {}, int64_t leaves = 0);

  /// `sizes`: the number of samples of each rank. Throws Error (exit code data) that names ranks
  /// and sizes if a rank would have batches without a sample or, with drop_last, would leave out a
  /// whole batch or more.
  static DistributedSampler local(std::vector<int64_t> sizes, int rank, uint64_t seed,
                                  bool shuffle = true, int64_t batch_size = 1,
                                  bool drop_last = false);

  /// Number of batches in an epoch, or in its rest after `start` samples. The same on every rank.
  int64_t batches(int64_t start = 0) const;
  /// Number of samples of this rank in an epoch.
  int64_t samples() const;
  /// The indices of the samples in this rank's batch at `position`.
  std::vector<size_t> batch(SamplerPosition position);
  /// The position after `position`: the next batch, or the first batch of the next epoch.
  SamplerPosition after(SamplerPosition position) const;
  /// Throws Error if there is no batch at `position`, because the position comes from another
  /// sampler.
  void check(SamplerPosition position) const;

  /// Number of samples of this epoch that all ranks together have used before `position`. They are
  /// always the first samples of the epoch's order. With leaves: before the update of `position`.
  int64_t taken(SamplerPosition position) const;
  /// The position at which to continue an epoch whose first `taken` samples are used. If too few
  /// samples remain for a batch on every rank, they are left out, as with drop_last at the end of
  /// an epoch.
  SamplerPosition after_samples(int64_t epoch, int64_t taken) const;

  /// Number of samples of all ranks together.
  int64_t size() const { return size_; }
  /// is_local(): true if each rank has different data (local()). sizes_digest(): a number that
  /// identifies the sizes of all ranks; 0 if not local.
  bool is_local() const { return !sizes_.empty(); }
  int64_t sizes_digest() const;
  /// A number that identifies the weights of the samples; 0 without weights.
  int64_t weights_digest() const;
  /// The seed of this rank's samples. The same on all ranks, unless is_local().
  uint64_t samples_seed() const;
  int rank() const { return static_cast<int>(rank_); }
  int ranks() const { return ranks_; }
  uint64_t seed() const { return seed_; }
  bool shuffles() const { return shuffle_; }
  int64_t batch_size() const { return batch_size_; }
  /// 0: samples are dealt to ranks.
  int64_t leaves() const { return leaves_; }
  /// Batches of this rank in an update: leaves / ranks; 1 without leaves.
  int64_t batches_per_update() const { return leaves_ > 0 ? leaves_ / ranks_ : 1; }
  bool drops_last() const { return drop_last_; }

  /// All `size` indices in the order of this epoch.
  static std::vector<size_t> shuffled(size_t size, uint64_t seed, int64_t epoch);

 private:
  const std::vector<size_t>& order(int64_t epoch);
  std::vector<size_t> drawn(int64_t epoch) const;
  void sum_weights(const std::vector<double>& weights);
  void check_local() const;
  /// The epoch is divided into as many shares as there are ranks, or leaves. In each update a share
  /// makes one batch.
  int64_t shares() const { return leaves_ > 0 ? leaves_ : ranks_; }
  int64_t rounds(int64_t start) const;
  int64_t share(int64_t rank, int64_t start) const;
  int64_t largest_share(int64_t start) const;
  int64_t smallest_share(int64_t start) const;
  int64_t samples(int64_t share, int64_t start) const;
  /// Number of samples of a share before its batch of round `round`.
  int64_t begin_of(int64_t share, int64_t round, int64_t start) const;

  int64_t size_;
  std::vector<int64_t> sizes_;  // samples of each rank; empty unless local
  int64_t rank_;
  int64_t ranks_;
  uint64_t seed_;
  bool shuffle_;
  int64_t batch_size_;
  bool drop_last_;
  int64_t leaves_ = 0;
  std::vector<double> weight_sums_;  // up to and with each sample; empty without weights
  std::vector<size_t> order_;        // order of epoch order_epoch_, if shuffled or drawn
  int64_t order_epoch_ = -1;
};

}  // namespace lockstep
