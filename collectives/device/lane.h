#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace lockstep::detail {

/// A point on a lane.
class LaneMark {
 public:
  virtual ~LaneMark() = default;
  /// Whether the device is past it. Never waits. Any thread.
  virtual bool passed() const = 0;
  /// What the caller puts on its current stream from now on starts after it. Never waits.
  virtual void hold_current() const = 0;
};

/// The stream that a communicator's device work runs on, apart from the streams that compute, and
/// how the two hand over to each other. Nothing here makes the host wait but drain().
///
/// Threads: one at a time, but for enter_thread() and marks.
class DeviceLane {
 public:
  virtual ~DeviceLane() = default;

  virtual c10::Device device() const = 0;
  /// The stream as the device's own libraries take it (cudaStream_t).
  virtual void* stream() const = 0;
  /// Makes the calling thread use this device.
  virtual void enter_thread() const = 0;

  /// What is put on the lane from now on starts after all that the caller's current stream holds.
  virtual void follow_current() = 0;
  /// A mark behind all that is on the lane.
  virtual std::shared_ptr<LaneMark> mark() = 0;
  /// The memory of `tensor` is not given to anyone else before the lane has reached its present
  /// end, whoever drops the tensor.
  virtual void protect(const at::Tensor& tensor) = 0;

  /// tensor *= factor, on the lane.
  virtual void scale(const at::Tensor& tensor, double factor) = 0;
  /// to = from, on the lane; one of them may be host_memory().
  virtual void copy(const at::Tensor& to, const at::Tensor& from) = 0;

  /// A one-dimensional tensor, zeroed on the caller's current stream, on device memory that
  /// `release` gives back.
  virtual at::Tensor zeros_on(void* memory, int64_t numel, at::ScalarType dtype,
                              std::function<void(void*)> release) = 0;
  /// A one-dimensional zeroed tensor of the device.
  virtual at::Tensor zeros(int64_t numel, at::ScalarType dtype) = 0;
  /// Host memory that the device reads and writes without a copy in between (page-locked).
  virtual at::Tensor host_memory(int64_t numel, at::ScalarType dtype) = 0;
  /// Returns once the device has nothing left to do.
  virtual void drain() = 0;
};

/// A lane on a stream of high priority of `device`. Needs no CUDA toolkit: it goes through the
/// interface by which LibTorch's devices plug in.
std::shared_ptr<DeviceLane> make_device_lane(c10::Device device);

}  // namespace lockstep::detail
