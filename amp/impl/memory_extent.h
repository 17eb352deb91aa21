#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::detail {

/// The bytes of a storage from a strided tensor's first element to its last; empty without
/// elements.
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
