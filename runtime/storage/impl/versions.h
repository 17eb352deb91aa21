#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/amp/model.h>

#include <cstdint>
#include <vector>

namespace lockstep::detail {

/// Advances the version of each tensor, as LibTorch's in-place operators do: a backward whose graph
/// saved an earlier value then throws. Call it after writes through a pointer or through an alias
/// with a version of its own. Inference tensors have no version. Any thread.
void note_writes(const std::vector<ModelTensor>& tensors);

/// LibTorch's version of a tensor: each in-place write and each note_writes() adds 1. Not for
/// inference tensors.
inline uint32_t version_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

/// True if this thread made a part of the graph of `loss` before its last note_writes(). Walks
/// through the whole graph, so it is for error messages.
bool is_partly_older_than_writes(const at::Tensor& loss);

}  // namespace lockstep::detail
