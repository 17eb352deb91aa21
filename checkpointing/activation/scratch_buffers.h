#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace lockstep::activation {

/// Replaces the storage of tensors by scratch copies in the lifetime of the object. Writes to the
/// tensors in that time are discarded; the identity and version counters of the tensors do not
/// change. Threads: no other thread may use the tensors meanwhile.
class ScratchBuffers {
 public:
  [[nodiscard]] explicit ScratchBuffers(std::vector<at::Tensor> buffers);
  ~ScratchBuffers();
  ScratchBuffers(const ScratchBuffers&) = delete;
  ScratchBuffers& operator=(const ScratchBuffers&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> lent_;  // buffer, alias of its own storage
};

}  // namespace lockstep::activation
