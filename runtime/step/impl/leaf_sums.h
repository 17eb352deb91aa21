#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/fixed_point.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/storage/impl/bucket_plan.h>

#include <vector>

namespace lockstep::detail {

/// With TrainerOptions::reproducible: the sums of the gradients of all leaves, bucket by bucket, in
/// fixed point. No addition rounds, so any all-reduce of of(bucket) has the same bits, whichever
/// rank ran which leaf. Ranks: local. Threads: one.
class LeafSums {
 public:
  /// One int64 array for each bucket: an element for each element of the bucket, then one for each
  /// slot, which counts gradients that did not fit. Collective. If one rank runs out of memory,
  /// throws Error (exit code out_of_memory) on every rank.
  static std::vector<at::Tensor> allocate(const Communicator& communicator,
                                          const std::vector<BucketPlan>& plans);

  /// `sums`: from allocate(). `leaves`: the number of terms of each sum.
  LeafSums(std::vector<at::Tensor> sums, std::vector<BucketPlan> plans, int64_t leaves);

  /// Adds the gradient to slot `slot`; `first`: replaces the sum.
  void add(size_t bucket, size_t slot, const at::Tensor& gradient, bool first);
  void clear(size_t bucket, size_t slot);
  const at::Tensor& of(size_t bucket) const { return sums_[bucket]; }
  /// to = sums * factor. A slot with a gradient that did not fit becomes NaN.
  void read(size_t bucket, const at::Tensor& to, double factor) const;
  int64_t bytes() const;

 private:
  at::Tensor part(size_t bucket, size_t slot) const;
  int64_t& misfits(size_t bucket, size_t slot) const;

  std::vector<at::Tensor> sums_;
  std::vector<BucketPlan> plans_;
  amp::FixedPoint form_;
};

}  // namespace lockstep::detail
