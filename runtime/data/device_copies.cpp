#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/collectives/impl/side_streams.h>
#include <lockstep/runtime/data/impl/device_copies.h>

namespace lockstep {

c10::Stream DeviceCopies::stream_of(c10::Device device) {
  static detail::SideStreams streams;
  return streams.of(device);
}

at::Tensor DeviceCopies::page_locked(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || !tensor.is_cpu()) {
    return tensor;
  }
  LOCKSTEP_CHECK_CODE(tensor.has_storage(), ExitCode::data, "a batch that is prefetched to ",
                      device, " has a tensor that ", detail::why_not_plain(tensor),
                      "; or leave LoaderOptions::prefetch out and move the batch with to_device()");
  if (tensor.is_pinned()) {
    return tensor;
  }
  detail::look_at_device_now();
  return detail::released_quietly(tensor.pin_memory());
}

DeviceCopies::DeviceCopies(const c10::Stream& stream)
    : stream_(stream), copied_(stream.device_type()) {}

at::Tensor DeviceCopies::add(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu()) {
    return tensor;
  }
  const c10::StreamGuard on_stream(stream_);
  tensors_.push_back(tensor.to(stream_.device(), /*non_blocking=*/true));
  return tensors_.back();
}

void DeviceCopies::close() {
  const c10::StreamGuard on_stream(stream_);
  copied_.record(stream_);
}

void DeviceCopies::hand_over() const {
  const c10::impl::VirtualGuardImpl device(stream_.device_type());
  const c10::Stream current = device.getStream(stream_.device());
  copied_.block(current);
  for (const at::Tensor& tensor : tensors_) {
    device.recordDataPtrOnStream(tensor.storage().data_ptr(), current);
  }
}

}  // namespace lockstep
