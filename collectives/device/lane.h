#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace lockstep::detail {

/// A point in the work of a lane (a CUDA event).
class LaneMark {
 public:
  virtual ~LaneMark() = default;
  /// Whether the device has reached it. Never waits. Any thread.
  virtual bool passed() const = 0;
  /// Later work on the caller's current stream starts after this mark. The host never waits.
  virtual void hold_current() const = 0;
};

/// The stream that runs the device work of a communicator, beside the streams that compute, and the
/// ordering between them. Only drain() makes the host wait.
///
/// Threads: one at a time; any for enter_thread() and marks.
class DeviceLane {
 public:
  virtual ~DeviceLane() = default;

  virtual c10::Device device() const = 0;
  /// The stream as the libraries of the device take it (cudaStream_t).
  virtual void* stream() const = 0;
  /// The calling thread uses this device until the result is destroyed, on the same thread. For
  /// calls of libraries that take the thread's current device: NCCL's, and a query of an event.
  [[nodiscard]] virtual std::shared_ptr<void> enter_thread() const = 0;

  /// Later work on the lane starts after the work that is now on the caller's current stream.
  virtual void follow_current() = 0;
  /// A mark after all work that is on the lane now.
  virtual std::shared_ptr<LaneMark> mark() = 0;
  /// Keeps the allocator from reusing the memory of `tensor` until the lane has done its present
  /// work.
  virtual void protect(const at::Tensor& tensor) = 0;

  /// tensor *= factor, on the lane.
  virtual void scale(const at::Tensor& tensor, double factor) = 0;
  /// to = from, on the lane; one of them may be host_memory().
  virtual void copy(const at::Tensor& to, const at::Tensor& from) = 0;

  /// A one-dimensional tensor, zeroed on the caller's current stream, on `memory` of the device,
  /// which `release` frees.
  virtual at::Tensor zeros_on(void* memory, int64_t numel, at::ScalarType dtype,
                              std::function<void(void*)> release) = 0;
  /// A one-dimensional zeroed tensor of the device.
  virtual at::Tensor zeros(int64_t numel, at::ScalarType dtype) = 0;
  /// Host memory that the device reads and writes without a copy in between (page-locked).
  virtual at::Tensor host_memory(int64_t numel, at::ScalarType dtype) = 0;
  /// Waits until the device has no work left.
  virtual void drain() = 0;
};

/// A lane on a stream of high priority of `device`. Needs no CUDA toolkit: it uses LibTorch's
/// device-independent interface.
std::shared_ptr<DeviceLane> make_device_lane(c10::Device device);

}  // namespace lockstep::detail
