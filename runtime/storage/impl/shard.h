#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/runtime/storage/impl/bucket_plan.h>

#include <algorithm>
#include <cstdint>

namespace lockstep::detail {

/// The part of a bucket for which a rank keeps masters, moments and averages, and which it updates
/// (ZeRO stage 1: Rajbhandari et al., 2020). Shards start at multiples of slot_alignment, as the
/// arrays of a FlatSpan do. The last shards may be short or empty.
struct Shard {
  int64_t begin = 0;
  int64_t numel = 0;
  int64_t stride = 0;  // elements from the start of one rank's shard to the next

  static Shard of(int64_t bucket_numel, int rank, int ranks) {
    const int64_t each = (bucket_numel + ranks - 1) / ranks;
    const int64_t stride = (each + slot_alignment - 1) / slot_alignment * slot_alignment;
    const int64_t begin = std::min(rank * stride, bucket_numel);
    return {begin, std::min(stride, bucket_numel - begin), stride};
  }

  /// The elements of a slot that lie in this shard.
  struct Part {
    int64_t in_slot = 0;   // first element, counted from the start of the slot
    int64_t in_shard = 0;  // first element, counted from the start of the shard
    int64_t numel = 0;
  };
  Part part_of(const Slot& slot) const {
    const int64_t first = std::clamp(slot.offset, begin, begin + numel);
    const int64_t end = std::clamp(slot.offset + slot.numel, begin, begin + numel);
    return {first == end ? 0 : first - slot.offset, first - begin, end - first};
  }
};

}  // namespace lockstep::detail
