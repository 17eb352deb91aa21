#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/storage/impl/bucket_plan.h>

#include <vector>

namespace lockstep::detail {

/// The memory in which gradients travel: of each bucket one flat tensor in the wire dtype.
///
/// Scattered buckets may share a ring of kWiresOfRing wires (ZeRO stage 2): a bucket that is
/// reduced leaves this rank's shard in `shards`, and gives its wire to the bucket that comes `ring`
/// later.
struct Wires {
  static constexpr size_t kWiresOfRing = 3;

  std::vector<at::Tensor> buckets;  // with the padding of equal shards, if scattered
  size_t ring = 0;                  // 0: each bucket has a wire of its own
  std::vector<at::Tensor> shards;   // with a ring: the reduced gradients of this rank's shards
  int64_t bytes = 0;                // of all of them
};

enum class WireLayout {
  whole,     // for all-reduces
  scattered  // padded to equal shards; a ring, if that takes fewer bytes
};

/// Allocates in the memory in which `communicator` is fastest. Collective. If one rank runs out of
/// memory, throws Error (exit code out_of_memory) on every rank.
Wires allocate_wires(Communicator& communicator, const std::vector<BucketPlan>& plans,
                     WireLayout layout = WireLayout::whole);

}  // namespace lockstep::detail
