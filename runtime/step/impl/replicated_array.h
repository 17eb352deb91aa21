#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/process/impl/digest_difference.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// An array of which every rank holds a copy with the same bits.
struct ReplicatedArray {
  std::string name;
  at::Tensor array;  // dense, of any strides and device

  /// One-dimensional, in the order of the memory: an alias, or a copy if the array has gaps.
  at::Tensor flat() const;
  uint64_t digest() const;
};

/// Describes the difference between the ranks' bits: which ranks differ from the majority, and in
/// which array first. None if all are equal. The same on every rank; collective.
std::optional<DigestDifference> difference_between_ranks(const std::vector<ReplicatedArray>& arrays,
                                                         const Agreement& agreement);

}  // namespace lockstep::detail
