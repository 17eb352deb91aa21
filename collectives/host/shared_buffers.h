#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/host/shared_memory.h>

#include <map>
#include <memory>
#include <vector>

namespace lockstep::detail {

/// The shared buffers of a communicator. Finds, for a tensor of this rank, the same place in the
/// buffers of the other ranks of the node.
class SharedBuffers {
 public:
  /// Where a tensor lies. `copies[k]`: the same offset in the buffer of local rank k.
  struct Place {
    int64_t buffer;
    int64_t offset;  // bytes
    std::vector<char*> copies;
  };

  /// A tensor on a new buffer, whose memory lives as long as a tensor uses it. `memory[k]`: of
  /// local rank k. The ranks add buffers in the same order.
  at::Tensor add(std::vector<std::shared_ptr<SharedMemory>> memory, int rank, int64_t numel,
                 at::ScalarType dtype);
  /// False if the bytes are not inside one buffer.
  bool find(const char* data, size_t bytes, Place& place);

 private:
  struct Buffer {
    int64_t id;
    int rank;
    std::vector<std::shared_ptr<SharedMemory>> memory;
  };
  std::map<const char*, std::weak_ptr<Buffer>> buffers_;  // by this rank's address
  int64_t next_id_ = 0;
};

}  // namespace lockstep::detail
