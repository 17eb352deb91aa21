#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace lockstep::activation {

/// Lends tensors scratch copies of their storage for the life of the object: what is written to
/// them meanwhile is forgotten, and neither their identity nor their version counters notice.
/// Threads: none may use the tensors at the same time.
class ScratchBuffers {
 public:
  explicit ScratchBuffers(std::vector<at::Tensor> buffers);
  ~ScratchBuffers();
  ScratchBuffers(const ScratchBuffers&) = delete;
  ScratchBuffers& operator=(const ScratchBuffers&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> lent_;  // buffer, alias of its own storage
};

}  // namespace lockstep::activation
