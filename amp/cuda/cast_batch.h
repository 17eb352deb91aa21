#pragma once

#include <lockstep/amp/cuda/element_pack.h>

namespace lockstep::amp {

/// Elements that one block of threads casts at a time.
constexpr int64_t kCastChunk = 8192;

/// Arrays that one launch casts. Chunk c of the batch belongs to the last array a with
/// arrays[a].first_chunk <= c.
struct CastBatch {
  struct Array {
    void* to = nullptr;
    const void* from = nullptr;
    int64_t size = 0;
    int32_t first_chunk = 0;
    Element to_type = Element::none;
    Element from_type = Element::none;
  };
  static constexpr int kArrays = 120;  // passed to kernels by value: at most 4 KB
  Array arrays[kArrays];
  int32_t count = 0;
  int32_t chunks = 0;

  /// Adds an array; false if the batch is full. Takes arrays of at most 2^31 chunks together.
  bool add(const Elements& to, const Elements& from, int64_t size) {
    if (count == kArrays) {
      return false;
    }
    arrays[count++] = {to.data, from.data, size, chunks, to.type, from.type};
    chunks += static_cast<int32_t>((size + kCastChunk - 1) / kCastChunk);
    return true;
  }
  LOCKSTEP_HOST_DEVICE int array_of(int32_t chunk) const {
    int first = 0;
    int end = count;  // search in [first, end)
    while (end - first > 1) {
      const int middle = (first + end) / 2;
      if (arrays[middle].first_chunk <= chunk) {
        first = middle;
      } else {
        end = middle;
      }
    }
    return first;
  }
};
static_assert(sizeof(CastBatch) <= 4000);

}  // namespace lockstep::amp
