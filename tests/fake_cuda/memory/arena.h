#pragma once

#include <cstddef>
#include <cstdint>

namespace fake_cuda {

/// A large range of addresses that hands out pieces of memory, each once: a piece that was given
/// back stays closed. Pieces end at a guard page. Not thread-safe, except contains().
class Arena {
 public:
  /// Reserves the addresses; throws std::bad_alloc if the process may not have them.
  Arena();
  /// At least 256 bytes aligned, filled with `fill`. Null if the system gives no more.
  void* take(size_t bytes, unsigned char fill);
  /// `memory` and `bytes` as of take().
  void give_back(void* memory, size_t bytes);
  bool contains(uintptr_t address) const { return address >= begin_ && address < end_; }

 private:
  uintptr_t begin_ = 0;
  uintptr_t end_ = 0;
  uintptr_t next_ = 0;  // the first page that nobody has had
};

}  // namespace fake_cuda
