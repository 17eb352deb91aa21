#include <c10/core/ScalarTypeToTypeMeta.h>
#include <lockstep/runtime/step/impl/wires.h>
#include <lockstep/runtime/storage/impl/shard.h>

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::detail {
namespace {

int64_t bytes_of(int64_t numel, at::ScalarType dtype) {
  return numel * static_cast<int64_t>(c10::elementSize(dtype));
}

/// What a ring takes: elements of each of its wires by place and dtype, and of all shards by dtype.
struct RingSizes {
  std::map<std::pair<size_t, at::ScalarType>, int64_t> wires;
  std::map<at::ScalarType, int64_t> shards;
  int64_t bytes = 0;

  RingSizes(const std::vector<BucketPlan>& plans, int ranks) {
    for (size_t b = 0; b < plans.size(); ++b) {
      const at::ScalarType dtype = plans[b].wire_dtype;
      const int64_t stride = Shard::of(plans[b].numel, 0, ranks).stride;
      int64_t& wire = wires[{b % Wires::kWiresOfRing, dtype}];
      wire = std::max(wire, stride * ranks);
      shards[dtype] += stride;
    }
    for (const auto& [place, numel] : wires) {
      bytes += bytes_of(numel, place.second);
    }
    for (const auto& [dtype, numel] : shards) {
      bytes += bytes_of(numel, dtype);
    }
  }
};

Wires allocate_ring(Communicator& communicator, const std::vector<BucketPlan>& plans,
                    const RingSizes& sizes) {
  const int ranks = communicator.size();
  std::map<std::pair<size_t, at::ScalarType>, at::Tensor> wires;
  for (const auto& [place, numel] : sizes.wires) {
    wires[place] = communicator.allocate(numel, place.second);
  }
  std::map<at::ScalarType, at::Tensor> shards;
  for (const auto& [dtype, numel] : sizes.shards) {
    shards[dtype] = communicator.allocate(numel, dtype);
  }
  Wires result;
  result.ring = Wires::kWiresOfRing;
  result.bytes = sizes.bytes;
  std::map<at::ScalarType, int64_t> used;
  for (size_t b = 0; b < plans.size(); ++b) {
    const at::ScalarType dtype = plans[b].wire_dtype;
    const Shard own = Shard::of(plans[b].numel, communicator.rank(), ranks);
    result.buckets.push_back(
        wires[{b % Wires::kWiresOfRing, dtype}].narrow(0, 0, own.stride * ranks));
    result.shards.push_back(shards[dtype].narrow(0, used[dtype], own.numel));
    used[dtype] += own.stride;
  }
  return result;
}

}  // namespace

Wires allocate_wires(Communicator& communicator, const std::vector<BucketPlan>& plans,
                     WireLayout layout) {
  Wires result;
  for (const BucketPlan& plan : plans) {
    result.bytes += bytes_of(plan.numel, plan.wire_dtype);
  }
  const int ranks = communicator.size();
  if (layout == WireLayout::scattered) {
    const RingSizes ring(plans, ranks);
    if (ring.bytes < result.bytes) {
      return allocate_ring(communicator, plans, ring);
    }
  }
  for (const BucketPlan& plan : plans) {
    const int64_t padded = Shard::of(plan.numel, 0, ranks).stride * ranks;
    const int64_t numel = layout == WireLayout::whole ? plan.numel : padded;
    result.buckets.push_back(communicator.allocate(numel, plan.wire_dtype));
  }
  return result;
}

}  // namespace lockstep::detail
