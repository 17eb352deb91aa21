#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/snapshot/impl/save_plan.h>

#include <cstddef>
#include <vector>

namespace lockstep::snapshot {

/// Host memory for copies of tensors while they are written. It is reused, so only the first save
/// allocates pages for them; what was fetched is a copy already. Threads: one; not while a copy is
/// being read.
class ShadowMemory {
 public:
  /// Replaces each tensor by a copy, unless it is one.
  void replace_by_copies(std::vector<PlannedFile>& files);

 private:
  at::Tensor copy_of(const at::Tensor& tensor, size_t place);

  std::vector<at::Tensor> copies_;
};

}  // namespace lockstep::snapshot
