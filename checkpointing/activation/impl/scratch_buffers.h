#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace lockstep::activation {

/// While the object lives, gives tensors a copy of their memory. The destructor restores the
/// original and so discards all writes, also through views. The tensors, their storages and their
/// version counters stay. Threads: no other thread may use the tensors meanwhile.
class ScratchBuffers {
 public:
  [[nodiscard]] explicit ScratchBuffers(const std::vector<at::Tensor>& buffers);
  ~ScratchBuffers();
  ScratchBuffers(const ScratchBuffers&) = delete;
  ScratchBuffers& operator=(const ScratchBuffers&) = delete;

 private:
  std::vector<std::pair<c10::Storage, at::DataPtr>> lent_;  // storage, its own memory
};

}  // namespace lockstep::activation
