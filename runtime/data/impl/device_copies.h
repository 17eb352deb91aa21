#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <vector>

namespace lockstep {

/// The copies of one batch to a CUDA device, made ahead of their use, on a stream apart from the
/// one that computes. A thread that loads batches calls add() for each tensor, then close(). The
/// thread that computes then calls hand_over(). No call waits for the device.
class DeviceCopies {
 public:
  /// The stream of `device` for all copies of this process: LibTorch has only 32 to give away, and
  /// a loader made for each epoch would come to one that has another use.
  static c10::Stream stream_of(c10::Device device);

  explicit DeviceCopies(const c10::Stream& stream);

  /// Copies a host tensor to page-locked memory, and from there, on the stream, to the device.
  /// Returns the tensor on the device. A tensor that is there already is returned as it is.
  at::Tensor add(const at::Tensor& tensor);
  /// Marks the end of the copies.
  void close();
  /// Makes the current stream of the calling thread wait for the copies, and the memory of the
  /// copies wait for that stream before others get the memory. Requires: close().
  void hand_over() const;

 private:
  c10::Stream stream_;
  c10::Event copied_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace lockstep
