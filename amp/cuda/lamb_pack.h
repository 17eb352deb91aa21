#pragma once

#include <lockstep/amp/cuda/pack_work.h>
#include <lockstep/amp/cuda/update_pack.h>
#include <lockstep/amp/impl/lamb_update.h>

namespace lockstep::amp {

/// Sums of squares over a parameter or a part of it.
struct LambSums {
  double weights = 0.0;
  double directions = 0.0;
};

/// Elements that one block sums. Constant, so the additions are the same on every device.
constexpr int64_t kLambChunk = 8192;

LOCKSTEP_HOST_DEVICE int64_t lamb_chunks_of(int64_t size) {
  return (size + kLambChunk - 1) / kLambChunk;
}

/// LAMB's first pass over a pack: updates the moments and adds the squares to `sums`.
LOCKSTEP_HOST_DEVICE void lamb_direction_pack(const LambUpdate::Direction<float>& direction,
                                              PackValues& values, LambSums& sums) {
  sums.weights += squares_of(values.weight);
  compute_pack<LambUpdate>(direction, values);
  sums.directions += squares_of(values.weight);
}

/// Parameters that one set of launches updates. Chunk c of the batch belongs to the last span s
/// with first_chunk[s] <= c.
struct LambBatch {
  static constexpr int kSpans = 16;  // passed to kernels by value: at most 4 KB
  UpdateArrays spans[kSpans];
  int64_t first_chunk[kSpans + 1] = {};
  int count = 0;

  /// Adds a parameter; false if the batch is full.
  bool add(const UpdateArrays& arrays) {
    if (count == kSpans) {
      return false;
    }
    spans[count] = arrays;
    first_chunk[count + 1] = first_chunk[count] + lamb_chunks_of(arrays.size);
    ++count;
    return true;
  }
  LOCKSTEP_HOST_DEVICE int64_t chunks() const { return first_chunk[count]; }
  LOCKSTEP_HOST_DEVICE int span_of(int64_t chunk) const {
    int span = 0;
    while (span + 1 < count && first_chunk[span + 1] <= chunk) {
      ++span;
    }
    return span;
  }
};

/// Device memory between the launches: one element for each chunk, one for each span.
struct LambScratch {
  LambSums* sums = nullptr;
  LambUpdate::Move<float>* moves = nullptr;

  static int64_t bytes(const LambBatch& batch) {
    return batch.chunks() * static_cast<int64_t>(sizeof(LambSums)) +
           batch.count * static_cast<int64_t>(sizeof(LambUpdate::Move<float>));
  }
  static LambScratch in(void* memory, const LambBatch& batch) {
    auto* const sums = static_cast<LambSums*>(memory);
    return {sums, reinterpret_cast<LambUpdate::Move<float>*>(sums + batch.chunks())};
  }
};

}  // namespace lockstep::amp
