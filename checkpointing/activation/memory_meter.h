#pragma once

#include <c10/core/DeviceType.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

namespace lockstep {

/// Counts the bytes of the tensors that this thread, and backward on its behalf, allocates in the
/// lifetime of the object. To measure activations, open it before forward. The meter sees the
/// allocations of LibTorch's own allocators, on the host or on CUDA devices. It uses the reporting
/// channel of LibTorch's profiler, so it cannot work while that profiler runs. Meters nest: only
/// the innermost counts. Memory that was allocated before the meter opened is not counted.
///
/// Threads: create and destroy it on one thread; any thread may read the figures.
class MemoryMeter {
 public:
  [[nodiscard]] explicit MemoryMeter(c10::DeviceType device = c10::DeviceType::CPU);
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// Bytes allocated since construction and not freed yet.
  int64_t live() const noexcept;
  /// The maximum of live() since construction or the last reset_peak().
  int64_t peak() const noexcept;
  void reset_peak() noexcept;

 private:
  class Counter;
  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace lockstep
