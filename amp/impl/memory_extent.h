#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::detail {

/// The byte range of a strided tensor in its storage, from first to last element; may be empty.
struct MemoryExtent {
  explicit MemoryExtent(const at::Tensor& tensor);
  bool overlaps(const MemoryExtent& other) const {
    return storage == other.storage && begin < other.end && other.begin < end;
  }

  const void* storage;
  int64_t begin;
  int64_t end;
};

}  // namespace lockstep::detail
