#pragma once

#include "fake_stream.h"

#include <ATen/ATen.h>
#include <lockstep/collectives/device/lane.h>

#include <cstring>
#include <thread>

namespace lockstep::testing {

using namespace detail;

inline const c10::Device kFakeDevice(c10::DeviceType::PrivateUse1, 0);

using Storages = std::vector<const c10::StorageImpl*>;
inline Storages storages_of(const std::vector<at::Tensor>& tensors) {
  Storages storages;
  for (const at::Tensor& tensor : tensors) {
    storages.push_back(tensor.storage().unsafeGetStorageImpl());
  }
  return storages;
}

/// The bytes of a tensor of the fake device, for the test to look at.
inline at::Tensor bytes_of_device(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(),
                       at::TensorOptions().dtype(tensor.scalar_type()));
}

/// A copy of `values` on the fake device. `dies` is called when its memory does.
inline at::Tensor on_fake_device(
    const at::Tensor& values, std::function<void()> dies = [] {}) {
  const at::Tensor memory = values.clone();
  return at::from_blob(
      memory.data_ptr(), memory.sizes(), [memory, dies = std::move(dies)](void*) { dies(); },
      at::TensorOptions().dtype(values.scalar_type()).device(kFakeDevice), kFakeDevice);
}

/// The thread's stay on the fake device. Every thread begins on another one, also that of the test:
/// it stands for one that has made its own device current.
class OnFakeDevice {
 public:
  OnFakeDevice() { ++depth_; }
  ~OnFakeDevice() { --depth_; }
  OnFakeDevice(const OnFakeDevice&) = delete;
  OnFakeDevice& operator=(const OnFakeDevice&) = delete;
  static bool entered() { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

/// A lane of the fake device beside the stream on which the test computes.
class FakeLane final : public DeviceLane {
 public:
  explicit FakeLane(FakeStream& current) : current_(current) {}

  c10::Device device() const override { return kFakeDevice; }
  void* stream() const override { return &lane_; }
  std::shared_ptr<void> enter_thread() const override { return std::make_shared<OnFakeDevice>(); }
  void follow_current() override { lane_.follow(current_.marker()); }
  std::shared_ptr<LaneMark> mark() override {
    return std::make_shared<Mark>(lane_.marker(), current_, lost, busy);
  }
  void protect(const at::Tensor& tensor) override {
    protected_memory.push_back(tensor.storage().unsafeGetStorageImpl());
  }
  void scale(const at::Tensor& tensor, double factor) override {
    scales.push_back(factor);
    lane_.run([tensor, factor] { bytes_of_device(tensor).mul_(factor); });
  }
  void copy(const at::Tensor& to, const at::Tensor& from) override {
    TORCH_CHECK(to.sizes() == from.sizes(), "copies ", from.sizes(), " to ", to.sizes());
    lane_.run([to, from] {
      if (from.nbytes() > 0) {
        std::memcpy(to.data_ptr(), from.data_ptr(), from.nbytes());
      }
    });
  }
  at::Tensor zeros_on(void* memory, int64_t numel, at::ScalarType dtype,
                      std::function<void(void*)> release) override {
    std::memset(memory, 0, static_cast<size_t>(numel) * c10::elementSize(dtype));
    return at::from_blob(memory, {numel}, std::move(release),
                         at::TensorOptions().dtype(dtype).device(kFakeDevice), kFakeDevice);
  }
  at::Tensor zeros(int64_t numel, at::ScalarType dtype) override {
    TORCH_CHECK_WITH(OutOfMemoryError, !is_full, "the device is full");
    return on_fake_device(at::zeros({numel}, dtype));
  }
  at::Tensor host_memory(int64_t numel, at::ScalarType dtype) override {
    TORCH_CHECK_WITH(OutOfMemoryError, !is_full, "no page-locked memory");
    return at::empty({numel}, dtype);
  }
  void drain() override {
    require(lost);
    lane_.finish();
  }

  /// Whether whoever asks the device how far it is hears that it has failed.
  const std::shared_ptr<std::atomic<bool>> lost = std::make_shared<std::atomic<bool>>(false);
  /// While it is set, the driver answers nobody.
  const std::shared_ptr<std::atomic<bool>> busy = std::make_shared<std::atomic<bool>>(false);
  bool is_full = false;
  std::vector<double> scales;
  Storages protected_memory;

 private:
  using Flag = std::shared_ptr<std::atomic<bool>>;

  static void require(const Flag& lost) {
    if (lost->load()) {
      throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 719,
                                  "unspecified launch failure");
    }
  }

  class Mark final : public LaneMark {
   public:
    Mark(std::shared_ptr<FakeEvent> event, FakeStream& current, Flag lost, Flag busy)
        : event_(std::move(event)),
          current_(current),
          lost_(std::move(lost)),
          busy_(std::move(busy)) {}
    /// With the rules of a capture in global mode.
    bool passed() const override {
      TORCH_CHECK(OnFakeDevice::entered() || std::this_thread::get_id() == maker_,
                  "a thread that has not entered the device asks it for an event");
      while (busy_->load()) {
        std::this_thread::yield();
      }
      require(lost_);
      TORCH_CHECK(event_->graph == nullptr, "an event of a graph was queried");
      TORCH_CHECK(current_.graph() == nullptr, "an event was queried during a capture");
      return event_->reached.load();
    }
    void hold_current() const override { current_.follow(event_); }

   private:
    std::shared_ptr<FakeEvent> event_;
    FakeStream& current_;
    Flag lost_;
    Flag busy_;
    std::thread::id maker_ = std::this_thread::get_id();  // has recorded an event there
  };

  FakeStream& current_;
  mutable FakeStream lane_;
};

}  // namespace lockstep::testing
