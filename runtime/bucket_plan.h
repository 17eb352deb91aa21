#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <torch/arg.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// What a BucketOptions::bucket_bytes of 0 stands for.
constexpr int64_t kHostBucketBytes = 4 << 20;
constexpr int64_t kDeviceBucketBytes = 25 << 20;

struct BucketOptions {
  /// Bytes of gradients, in the wire dtype, in the first bucket. Small, so that the first
  /// collective starts early (DDP's kDefaultFirstBucketBytes).
  TORCH_ARG(int64_t, first_bucket_bytes) = 1 << 20;
  /// Bytes in each later bucket. 0: 25 MiB in device memory, as in DDP, and 4 MiB on hosts, where a
  /// call costs little and a slow link should not wait for the last bucket of backward. A parameter
  /// is never split. A parameter that fills a bucket by itself starts a new one if the present one
  /// is at least half full: a large embedding, whose gradient comes last, does not hold back the
  /// gradients before it.
  TORCH_ARG(int64_t, bucket_bytes) = 0;
};

/// Properties of a trainable parameter that the plan depends on. Parameters are passed in
/// registration order.
struct PlannedParameter {
  int64_t numel = 0;
  c10::ScalarType weight_dtype = c10::ScalarType::Float;
  c10::ScalarType wire_dtype = c10::ScalarType::Float;
  int group = 0;  // optimizer group
  c10::DeviceType device = c10::DeviceType::CPU;
  /// Where the optimizer is sharded, one rank updates all of the parameter.
  bool whole = false;
};

struct Slot {
  int parameter = 0;   // index into the planned parameters
  int64_t offset = 0;  // elements from the start of the bucket; a multiple of slot_alignment
  int64_t numel = 0;
};

/// Parameters that are reduced and updated together. They share one weight dtype, wire dtype and
/// optimizer group.
struct BucketPlan {
  c10::ScalarType weight_dtype = c10::ScalarType::Float;
  c10::ScalarType wire_dtype = c10::ScalarType::Float;
  int group = 0;
  int64_t numel = 0;  // with padding
  std::vector<Slot> slots;
};

/// Slots start at multiples of this number of elements: 128 bytes of fp16, 256 bytes of fp32.
constexpr int64_t slot_alignment = 64;

/// Lays out the buckets. `shards`: among how many ranks the optimizer's state is divided. Each
/// bucket is cut into as many equal shards. Whole parameters have buckets of their own, in which
/// each lies in one shard: the largest first, each in the shard that has least so far. Such a
/// bucket may grow beyond its limit of bytes, until padding is at most a fifth of it or no
/// parameter is left.
///
/// Parameters are placed in reverse registration order, which is roughly the
/// order in which backward completes them. Buckets are ordered by the position of their last
/// parameter in that order. A pure function of its arguments, with the same result on every rank.
/// The layout never changes afterwards: another layout adds in another order, which changes low
/// bits (pytorch #197890). Throws Error if first_bucket_bytes is not positive or bucket_bytes is
/// negative.
std::vector<BucketPlan> plan_buckets(const std::vector<PlannedParameter>& parameters,
                                     const BucketOptions& options, int shards = 1);

/// For Trainer::summary(): a sentence if much of the buckets is padding, else empty.
std::string padding_note(const std::vector<BucketPlan>& plans);

}  // namespace lockstep
