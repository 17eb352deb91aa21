#pragma once

#include <cstddef>

namespace lockstep::emulated_cuda {

/// Leaves the running stack, whose top is kept in `*from`, for the one with top `to`.
extern "C" void lockstep_switch_stack(void** from, void* to);

/// Memory for stacks, of which only what is used costs anything.
class Stacks {
 public:
  explicit Stacks(size_t count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  /// The top of a stack that begins with `entry`.
  void* top(size_t number, void (*entry)()) const;

 private:
  size_t count_;
  std::byte* memory_;
};

}  // namespace lockstep::emulated_cuda
