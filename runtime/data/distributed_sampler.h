#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// A place in the stream of batches: the one that comes next. Saved in snapshots; the same on
/// every rank.
struct SamplerPosition {
  int64_t epoch = 0;
  int64_t batch = 0;
  /// Samples at the beginning of this epoch's order that are taken already, so that batch 0 starts
  /// after them: not 0 in an epoch that began with another number of ranks or batch size.
  int64_t start = 0;

  bool operator==(const SamplerPosition& other) const {
    return epoch == other.epoch && batch == other.batch && start == other.start;
  }
  bool operator!=(const SamplerPosition& other) const { return !(*this == other); }
};

/// This rank's share of each epoch, in batches of sample indices.
///
/// The order of an epoch is a pure function of (size, seed, epoch), the same with every compiler
/// and library, and differs between epochs. Rank r takes the positions r, r + ranks, ... of it, so
/// each sample is used exactly once an epoch and shares differ by at most one sample. Every rank
/// makes the same number of batches, none of them empty: ceil(largest share / batch_size), but
/// never more than the smallest share has samples. All but the last have batch_size samples, the
/// last has the rest (with batch_size 1 that may be 2); a rank whose last batch would be empty
/// moves one sample over to it. With drop_last, every batch has batch_size samples and the
/// remaining ones of that epoch are left out.
///
/// Where each rank has samples of its own, local() makes it: each rank takes all of its own, in an
/// order of its own, once an epoch, and again every rank makes the same number of batches: those
/// that the rank with the most samples needs. A rank that would need fewer spreads its samples
/// evenly over as many, so its batches are smaller.
///
/// Ranks: each makes its own with the same arguments but `rank`; no communication. Threads: one
/// at a time.
/// Throws Error when size < ranks (with drop_last: size < ranks * batch_size), and for arguments
/// that are out of range.
class DistributedSampler {
 public:
  DistributedSampler(size_t size, int rank, int ranks, uint64_t seed, bool shuffle = true,
                     int64_t batch_size = 1, bool drop_last = false);

  /// `sizes`: how many samples each rank has. Throws Error (exit code data) that names ranks and
  /// sizes where a rank would have to make batches without a sample, or, with drop_last, would
  /// leave out a whole batch or more.
  static DistributedSampler local(std::vector<int64_t> sizes, int rank, uint64_t seed,
                                  bool shuffle = true, int64_t batch_size = 1,
                                  bool drop_last = false);

  /// Batches in an epoch (in what is left of it after `start` samples), on every rank.
  int64_t batches(int64_t start = 0) const;
  /// Samples of this rank in an epoch.
  int64_t samples() const { return samples(rank_, 0); }
  /// The indices of the samples in this rank's batch at `position`.
  std::vector<size_t> batch(SamplerPosition position);
  /// The position after `position`: the next batch, or the first of the next epoch.
  SamplerPosition after(SamplerPosition position) const;
  /// Throws Error if there is no such batch: the position comes from another sampler.
  void check(SamplerPosition position) const;

  /// How many samples all ranks together have taken of the position's epoch before it: always the
  /// first so many of its order.
  int64_t taken(SamplerPosition position) const;
  /// Where to go on in an epoch of which the first `taken` samples are done. Samples too few for a
  /// batch on every rank are left out, as at the end of an epoch with drop_last.
  SamplerPosition after_samples(int64_t epoch, int64_t taken) const;

  /// Of all ranks together.
  int64_t size() const { return size_; }
  /// Whether each rank has samples of its own, and a number that tells ranks' sizes from others; 0
  /// if not.
  bool is_local() const { return !sizes_.empty(); }
  int64_t sizes_digest() const;
  /// The seed of this rank's samples, the same on all ranks unless they have samples of their own.
  uint64_t samples_seed() const;
  int rank() const { return static_cast<int>(rank_); }
  int ranks() const { return ranks_; }
  uint64_t seed() const { return seed_; }
  bool shuffles() const { return shuffle_; }
  int64_t batch_size() const { return batch_size_; }
  bool drops_last() const { return drop_last_; }

  /// All `size` indices in the order of this epoch.
  static std::vector<size_t> shuffled(size_t size, uint64_t seed, int64_t epoch);

 private:
  const std::vector<size_t>& order(int64_t epoch);
  void check_local() const;
  int64_t share(int64_t rank, int64_t start) const;
  int64_t largest_share(int64_t start) const;
  int64_t smallest_share(int64_t start) const;
  int64_t samples(int rank, int64_t start) const;
  /// How many samples of `rank` come before its batch of that number.
  int64_t begin_of(int rank, int64_t batch, int64_t start) const;

  int64_t size_;
  std::vector<int64_t> sizes_;  // of each rank's own samples
  int64_t rank_;
  int64_t ranks_;
  uint64_t seed_;
  bool shuffle_;
  int64_t batch_size_;
  bool drop_last_;
  std::vector<size_t> order_;  // of order_epoch_, if shuffled
  int64_t order_epoch_ = -1;
};

}  // namespace lockstep
