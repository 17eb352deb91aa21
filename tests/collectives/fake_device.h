#pragma once

#include "fake_stream.h"

#include <ATen/ATen.h>
#include <lockstep/collectives/device/lane.h>

#include <cstring>
#include <mutex>
#include <set>
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

/// A lane of the fake device beside the stream on which the test computes.
class FakeLane final : public DeviceLane {
 public:
  explicit FakeLane(FakeStream& current) : current_(current) {}

  c10::Device device() const override { return kFakeDevice; }
  void* stream() const override { return &lane_; }
  void enter_thread() const override { threads_->enter(); }
  void follow_current() override { lane_.follow(current_.marker()); }
  std::shared_ptr<LaneMark> mark() override {
    return std::make_shared<Mark>(lane_.marker(), current_, lost, threads_);
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
  bool is_full = false;
  std::vector<double> scales;
  Storages protected_memory;

 private:
  using Flag = std::shared_ptr<std::atomic<bool>>;

  /// Those that use this device. A thread begins on another one.
  class Threads {
   public:
    Threads() { enter(); }
    void enter() {
      const std::lock_guard<std::mutex> lock(mutex_);
      here_.insert(std::this_thread::get_id());
    }
    void require_here() {
      const std::lock_guard<std::mutex> lock(mutex_);
      TORCH_CHECK(here_.count(std::this_thread::get_id()) != 0,
                  "a thread that has not entered the device asks it for an event");
    }

   private:
    std::mutex mutex_;
    std::set<std::thread::id> here_;
  };

  static void require(const Flag& lost) {
    if (lost->load()) {
      throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 719,
                                  "unspecified launch failure");
    }
  }

  class Mark final : public LaneMark {
   public:
    Mark(std::shared_ptr<FakeEvent> event, FakeStream& current, Flag lost,
         std::shared_ptr<Threads> threads)
        : event_(std::move(event)),
          current_(current),
          lost_(std::move(lost)),
          threads_(std::move(threads)) {}
    /// With the rules of a capture in global mode.
    bool passed() const override {
      threads_->require_here();
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
    std::shared_ptr<Threads> threads_;
  };

  const std::shared_ptr<Threads> threads_ = std::make_shared<Threads>();
  FakeStream& current_;
  mutable FakeStream lane_;
};

}  // namespace lockstep::testing
