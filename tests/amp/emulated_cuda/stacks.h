#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::emulated_cuda {

/// Leaves the running stack, whose top is kept in `*from`, for the one with top `to`.
extern "C" void lockstep_switch_stack(void** from, void* to);

/// Stacks for the threads of a block.
class Stacks {
 public:
  Stacks(size_t count, void (*entry)());
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  size_t count() const { return count_; }
  /// Every stack begins with `entry`, again, in new memory; their tops.
  std::vector<void*> begin();

 private:
  size_t count_;
  void (*entry_)();
  std::byte* memory_;
};

}  // namespace lockstep::emulated_cuda
