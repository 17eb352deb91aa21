#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::detail {

/// Zeroed memory that ranks of one node share. Unmapped with the last reference.
class SharedMemory {
 public:
  /// For the threads of this process.
  static std::shared_ptr<SharedMemory> for_threads(size_t bytes);
  /// Maps `bytes` of an open file for reading and writing. The descriptor may be closed after.
  static std::shared_ptr<SharedMemory> of_file(int descriptor, size_t bytes);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  SharedMemory(char* data, size_t bytes) : data_(data), bytes_(bytes) {}
  char* data_;
  size_t bytes_;
};

/// The ranks that share memory, and an all-gather of a few bytes among them.
struct MemoryPeers {
  int rank;
  int size;
  /// all[k] = what rank k passed as own (`bytes` bytes each). Blocking.
  std::function<void(const void* own, size_t bytes, void* all)> gather;
};

/// Every rank provides `bytes` of memory and maps that of all: element k is that of rank k.
/// Collective over the peers. Throws Error on every rank if one rank fails.
std::vector<std::shared_ptr<SharedMemory>> share_among_threads(size_t bytes,
                                                               const MemoryPeers& peers);
/// The same among processes. No name of the memory outlives the call, so a killed job leaves
/// nothing behind. Checks that a name leads to the memory of the rank that gave it: in containers
/// one name may stand for several files.
std::vector<std::shared_ptr<SharedMemory>> share_among_processes(size_t bytes,
                                                                 const MemoryPeers& peers);

}  // namespace lockstep::detail
