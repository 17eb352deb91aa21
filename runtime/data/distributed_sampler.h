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

  bool operator==(const SamplerPosition& other) const {
    return epoch == other.epoch && batch == other.batch;
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
/// Ranks: each makes its own with the same arguments but `rank`; no communication. Threads: one
/// at a time.
/// Throws Error when size < ranks (with drop_last: size < ranks * batch_size), and for arguments
/// that are out of range.
class DistributedSampler {
 public:
  DistributedSampler(size_t size, int rank, int ranks, uint64_t seed, bool shuffle = true,
                     int64_t batch_size = 1, bool drop_last = false);

  /// Batches in an epoch, on every rank.
  int64_t batches() const { return batches_; }
  /// Samples of this rank in an epoch.
  int64_t samples() const;
  /// The indices of the samples in this rank's batch at `position`.
  std::vector<size_t> batch(SamplerPosition position);
  /// The position after `position`: the next batch, or the first of the next epoch.
  SamplerPosition after(SamplerPosition position) const;
  /// Throws Error if there is no such batch: the position comes from another sampler.
  void check(SamplerPosition position) const;

  /// All `size` indices in the order of this epoch.
  static std::vector<size_t> shuffled(size_t size, uint64_t seed, int64_t epoch);

 private:
  const std::vector<size_t>& order(int64_t epoch);

  int64_t size_;
  int64_t rank_;
  int64_t ranks_;
  uint64_t seed_;
  bool shuffle_;
  int64_t batch_size_;
  bool drop_last_;
  int64_t batches_ = 0;
  std::vector<size_t> order_;  // of order_epoch_, if shuffled
  int64_t order_epoch_ = -1;
};

}  // namespace lockstep
