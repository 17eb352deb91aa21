#include <lockstep/collectives/device/lane.h>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/collectives/impl/device_watch.h>

namespace lockstep::detail {
namespace {

using c10::impl::VirtualGuardImpl;

class StreamMark final : public LaneMark {
 public:
  explicit StreamMark(const c10::Stream& stream) : event_(stream.device_type()) {
    event_.record(stream);
  }
  bool passed() const override { return event_.query(); }
  void hold_current() const override {
    const VirtualGuardImpl device(event_.device_type());
    event_.block(device.getStream(event_.device()));
  }

 private:
  c10::Event event_;
};

class StreamLane final : public DeviceLane {
 public:
  explicit StreamLane(c10::Device device)
      : guard_(device.type()),
        stream_(guard_.getStreamFromGlobalPool(device, /*isHighPriority=*/true)) {}

  c10::Device device() const override { return stream_.device(); }
  void* stream() const override { return guard_.getStreamNativeHandle(stream_); }
  std::shared_ptr<void> enter_thread() const override {
    return std::make_shared<c10::DeviceGuard>(device());
  }

  void follow_current() override {
    c10::Event reached(device().type());
    reached.record(guard_.getStream(device()));
    reached.block(stream_);
  }
  std::shared_ptr<LaneMark> mark() override { return std::make_shared<StreamMark>(stream_); }
  void protect(const at::Tensor& tensor) override {
    guard_.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
  }

  void scale(const at::Tensor& tensor, double factor) override {
    const c10::StreamGuard on_lane(stream_);
    at::Tensor(tensor).mul_(factor);
  }
  void copy(const at::Tensor& to, const at::Tensor& from) override {
    const c10::StreamGuard on_lane(stream_);
    at::Tensor(to).copy_(from, /*non_blocking=*/true);
  }

  at::Tensor zeros_on(void* memory, int64_t numel, at::ScalarType dtype,
                      std::function<void(void*)> release) override {
    const auto options = at::TensorOptions().dtype(dtype).device(device());
    return at::from_blob(memory, {numel}, std::move(release), options, device()).zero_();
  }
  at::Tensor zeros(int64_t numel, at::ScalarType dtype) override {
    return at::zeros({numel}, at::TensorOptions().dtype(dtype).device(device()));
  }
  at::Tensor host_memory(int64_t numel, at::ScalarType dtype) override {
    return host_memory_for(device(), {numel}, dtype);
  }
  void drain() override { guard_.synchronizeDevice(device().index()); }

 private:
  VirtualGuardImpl guard_;
  c10::Stream stream_;
};

}  // namespace

std::shared_ptr<DeviceLane> make_device_lane(c10::Device device) {
  return std::make_shared<StreamLane>(device);
}

}  // namespace lockstep::detail
