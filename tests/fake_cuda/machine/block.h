#pragma once

#include <vector>

#include "device_memory.h"
#include "lanes.h"
#include "launch.h"
#include "warp.h"

namespace fake_cuda {

/// One block of a launch at a time: its warps, its shared memory, its barriers.
class Block {
 public:
  Block(Launch& launch);

  /// Executes one block to its end.
  void run(dim3 position);

  const Program& program() const { return launch_.program(); }
  const Lanes* literals() const { return launch_.literals(); }
  Launch& launch() { return launch_; }
  DeviceMemory& memory() { return memory_; }
  dim3 position() const { return position_; }
  dim3 size() const { return launch_.block(); }
  std::vector<char>& shared() { return shared_; }
  /// The local memory of a thread of the block.
  char* local(int thread) { return local_.data() + size_t(thread) * local_bytes(); }
  size_t local_bytes() const { return launch_.local_bytes(); }
  /// How many instructions the launch has executed; a clock.
  int64_t instructions() const;

  // Barriers of the block. `threads`: how many take part, 0 for all.
  static constexpr int kBarriers = 16;
  void arrive(Warp& warp, uint32_t mask, int barrier, uint32_t threads, bool waits);
  /// The threads also give a condition, which the barrier joins.
  enum class Reduction : uint8_t { kOr, kAnd, kCount };
  void reduce(int barrier, uint32_t mask, uint32_t condition, Reduction reduction);
  /// What the last complete barrier with a condition found.
  uint32_t reduced() const { return reduced_; }
  /// Looks for barriers to which everybody has come.
  void release_complete();

 private:
  struct Barrier {
    std::vector<uint32_t> arrived;  // for each warp
    uint32_t threads = 0;
    bool is_used = false;
    bool has_condition = false;
    Reduction reduction = Reduction::kOr;
    uint32_t holds = 0;  // the condition, for so many threads
    uint32_t fails = 0;
  };
  bool is_complete(const Barrier& barrier) const;

  Launch& launch_;
  DeviceMemory memory_;
  dim3 position_;
  std::vector<char> shared_;
  std::vector<char> local_;
  std::vector<Warp> warps_;
  Barrier barriers_[kBarriers];
  bool any_barrier_ = false;
  uint32_t reduced_ = 0;
};

}  // namespace fake_cuda
