#pragma once

#include <c10/core/DeviceType.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

namespace lockstep {

/// Counts the bytes of the tensors that this thread, and backward on its behalf, allocates while
/// the object lives: for activations, open it before forward. It sees LibTorch's own allocators, on
/// the host or on CUDA devices, through the channel that LibTorch's profiler uses, so not while
/// that profiler runs. Meters nest: the innermost counts. Memory from before the meter is not
/// counted.
///
/// Threads: created and destroyed on one; the figures may be read on any.
class MemoryMeter {
 public:
  explicit MemoryMeter(c10::DeviceType device = c10::DeviceType::CPU);
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// Bytes allocated since the start and not freed.
  int64_t live() const noexcept;
  /// The most that live() has been since the start or the last reset_peak().
  int64_t peak() const noexcept;
  void reset_peak() noexcept;

 private:
  class Counter;
  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace lockstep
