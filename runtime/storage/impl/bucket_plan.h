#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <lockstep/runtime/policies.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Properties of a trainable parameter that the plan depends on. Parameters are passed in
/// registration order.
struct PlannedParameter {
  int64_t numel = 0;
  c10::ScalarType weight_dtype = c10::ScalarType::Float;
  c10::ScalarType wire_dtype = c10::ScalarType::Float;
  int group = 0;  // optimizer group
  c10::DeviceType device = c10::DeviceType::CPU;
  /// With a sharded optimizer, one rank updates the whole parameter.
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

/// Lays out the buckets. `shards`: the number of ranks that share the optimizer's state; each
/// bucket is cut into that many equal shards. Whole parameters have buckets of their own and are
/// not cut: the largest is placed first, each in the emptiest shard. Such a bucket may exceed its
/// limit of bytes, until at most a fifth of it is padding or no parameter is left.
///
/// Parameters are placed in reverse registration order, which is roughly the order in which
/// backward completes them. Buckets are ordered by the position of their last parameter in that
/// order. A pure function of its arguments, with the same result on every rank. The layout never
/// changes afterwards: another layout adds in another order, which changes low bits (pytorch
/// #197890). Throws Error if first_bucket_bytes is not positive or bucket_bytes is negative.
std::vector<BucketPlan> plan_buckets(const std::vector<PlannedParameter>& parameters,
                                     const BucketOptions& options, int shards = 1);

/// For Trainer::summary(): a sentence if much of the buckets is padding, else empty.
std::string padding_note(const std::vector<BucketPlan>& plans);

}  // namespace lockstep
