#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/checkpointing/snapshot/impl/save_plan.h>

#include <cstddef>
#include <vector>

namespace lockstep::snapshot {

/// Host memory that holds copies of tensors while they are written; used again for the next ones,
/// so that only the first save pays for fresh pages. Threads: one; not while a copy is being read.
class ShadowMemory {
 public:
  /// Puts a copy in the place of each tensor.
  void replace_by_copies(std::vector<PlannedFile>& files);

 private:
  at::Tensor copy_of(const at::Tensor& tensor, size_t place);

  std::vector<at::Tensor> copies_;
};

}  // namespace lockstep::snapshot
