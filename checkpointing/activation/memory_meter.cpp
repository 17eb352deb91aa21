#include <c10/core/Allocator.h>
#include <lockstep/checkpointing/activation/memory_meter.h>

#include <atomic>

namespace lockstep {

class MemoryMeter::Counter final : public c10::MemoryReportingInfoBase {
 public:
  explicit Counter(c10::DeviceType device) : device_(device) {}

  void reportMemoryUsage(void* /*ptr*/, int64_t bytes, size_t /*total_allocated*/,
                         size_t /*total_reserved*/, c10::Device device) override {
    if (device.type() != device_) {
      return;
    }
    const int64_t live = live_.fetch_add(bytes) + bytes;
    int64_t peak = peak_.load();
    while (live > peak && !peak_.compare_exchange_weak(peak, live)) {
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t live() const noexcept { return live_.load(); }
  int64_t peak() const noexcept { return peak_.load(); }
  void reset_peak() noexcept { peak_.store(live_.load()); }

 private:
  const c10::DeviceType device_;
  std::atomic<int64_t> live_{0};
  std::atomic<int64_t> peak_{0};
};

MemoryMeter::MemoryMeter(c10::DeviceType device)
    : counter_(std::make_shared<Counter>(device)),
      guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

int64_t MemoryMeter::live() const noexcept {
  return counter_->live();
}

int64_t MemoryMeter::peak() const noexcept {
  return counter_->peak();
}

void MemoryMeter::reset_peak() noexcept {
  counter_->reset_peak();
}

}  // namespace lockstep
