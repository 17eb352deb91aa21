#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/checkpointing/activation/offload/host_copy.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/collectives/impl/side_streams.h>

#include <cstdlib>
#include <new>

namespace lockstep::activation {

namespace {

/// The stream of a device that copies use.
c10::Stream copy_stream(c10::Device device) {
  static lockstep::detail::SideStreams streams;
  return streams.of(device);
}

/// Later work on `then` starts after all work that is queued on `first`.
void order(const c10::Stream& first, const c10::Stream& then) {
  c10::Event reached(first.device_type());
  reached.record(first);
  reached.block(then);
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// Not from LibTorch's allocator, so that a MemoryMeter does not count it as memory of the device.
at::Tensor second_buffer(const at::Tensor& like) {
  void* memory = std::malloc(like.nbytes());
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return at::from_blob(memory, like.sizes(), like.strides(), std::free, like.options());
}

}  // namespace

HostCopy::HostCopy(const at::Tensor& tensor) : device_(tensor.device()), is_neg_(tensor.is_neg()) {
  if (device_.is_cpu()) {
    host_ = second_buffer(tensor);
    host_.copy_(tensor);
    return;
  }
  const c10::Stream side = copy_stream(device_);
  order(current_stream(device_), side);
  const c10::StreamGuard guard(side);
  host_ = lockstep::detail::released_quietly(at::empty_strided(
      tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU).pinned_memory(true)));
  host_.copy_(tensor, /*non_blocking=*/true);
  tensor.record_stream(side);
}

bool HostCopy::is_like(const at::Tensor& tensor) const {
  return host_.sizes() == tensor.sizes() && host_.strides() == tensor.strides() &&
         host_.dtype() == tensor.dtype() && is_neg_ == tensor.is_neg();
}

void HostCopy::load() {
  if (loaded_.defined()) {
    return;
  }
  const auto options = host_.options().device(device_).pinned_memory(false);
  if (device_.is_cpu()) {
    loaded_ = at::empty_strided(host_.sizes(), host_.strides(), options);
    loaded_.copy_(host_);
    return;
  }
  const c10::Stream side = copy_stream(device_);
  const c10::StreamGuard guard(side);
  loaded_ = at::empty_strided(host_.sizes(), host_.strides(), options);
  loaded_.copy_(host_, /*non_blocking=*/true);
  arrival_.emplace(device_.type());
  arrival_->record(side);
}

at::Tensor HostCopy::wait() {
  if (!device_.is_cpu()) {
    const c10::Stream now = current_stream(device_);
    arrival_->block(now);
    loaded_.record_stream(now);
  }
  return loaded_;
}

}  // namespace lockstep::activation
