#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/host/shared_memory.h>

#include <map>
#include <memory>
#include <vector>

namespace lockstep::detail {

/// The memory that a communicator's ranks allocated together: finds, for a tensor of this rank,
/// where the same place is in the peers' memory.
class SharedBuffers {
 public:
  /// Where a tensor lies. `copies[k]` is the node's rank k's address of the same offset.
  struct Place {
    int64_t buffer;
    int64_t offset;  // bytes
    std::vector<char*> copies;
  };

  /// A tensor on a new buffer; the memory lives as long as a tensor on it. `memory[k]` is rank
  /// k's; the ranks add buffers in the same order.
  at::Tensor add(std::vector<std::shared_ptr<SharedMemory>> memory, int rank, int64_t numel,
                 at::ScalarType dtype);
  /// False when the bytes are not inside one living buffer.
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
