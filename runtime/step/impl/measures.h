#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/step/impl/decisions.h>
#include <lockstep/runtime/step/impl/reducer.h>

#include <vector>

namespace lockstep::detail {

/// Nos. 3 and 4 of the order: measures the reduced buckets and shares the flags of all ranks. One
/// all-reduce carries, of each rank:
///   without shards   Decisions::rank_sums(). The reduced buckets, and so their sums of squares,
///                    are the same on every rank (with local_updates they are a rank's own)
///   with shards      the sums of squares of its shard of each bucket, and of rank_sums() failure
///                    and losses alone: the totals of the buckets, made of these sums, count the
///                    buckets that are not finite
/// A bucket's sum of squares always adds the ranks' shards one by one, so it has the same bits in
/// both cases. Nothing here waits for a device; all can be captured. Threads: one.
class Measures {
 public:
  explicit Measures(Communicator devices) : devices_(std::move(devices)) {}

  /// Waits for each bucket of the window and measures it.
  void take(Reducer& reducer, const Decisions& decisions);
  /// Sums the flags over all ranks, and with shards makes the totals. Call it in every window.
  /// Collective.
  void share();

 private:
  void begin(const Reducer& reducer, const Decisions& decisions);
  void add(const Reducer& reducer, size_t bucket);

  Communicator devices_;
  at::Tensor totals_, rank_sums_;  // of the window's decision
  // If the reducer scatters: the sums of all buckets, the failure flag and the sum of the losses in
  // one tensor, fp64.
  at::Tensor shared_;
  std::vector<at::Tensor> bucket_sums_;
};

}  // namespace lockstep::detail
