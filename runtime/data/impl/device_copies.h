#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <vector>

namespace lockstep {

/// The copies of one batch to a CUDA device, made ahead of their use, on a stream apart from the
/// one that computes. Threads that load batches call page_locked() for each tensor. The program's
/// thread calls add() for what they return, then close(), and hand_over() where the batch is used.
/// No call waits for the device. Only the program's thread allocates memory of the device: once
/// the device has failed, LibTorch's allocator throws at its next call, and ends the process if a
/// second thread calls it, too.
class DeviceCopies {
 public:
  /// The stream of `device` for all copies of this process: LibTorch has only 32 to give away, and
  /// a loader made for each epoch would come to one that has another use.
  static c10::Stream stream_of(c10::Device device);

  /// The host tensor in page-locked memory, for add(). A tensor that is on `device` is returned as
  /// it is. Throws Error for a tensor without a memory of its own. Threads: any.
  static at::Tensor page_locked(const at::Tensor& tensor, c10::Device device);

  explicit DeviceCopies(const c10::Stream& stream);

  /// Copies a tensor of page_locked() on the stream to the device. Returns the tensor on the
  /// device. A tensor that is there already is returned as it is.
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
