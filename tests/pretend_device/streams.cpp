#include "streams.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>

#include "fault.h"
#include "memory.h"
#include "recording.h"

namespace lockstep::pretend {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::CUDA;
constexpr c10::StreamId kPool = 32;

thread_local c10::StreamId current = 0;

std::recursive_mutex& lock() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}
using Locked = std::lock_guard<std::recursive_mutex>;

void merge(Clock& into, const Clock& from) {
  for (const auto& [stream, epoch] : from) {
    into[stream] = std::max(into[stream], epoch);
  }
}

struct Clocks {
  std::map<c10::StreamId, Clock> streams;
  Clock host;
  c10::StreamId taken = 0;

  Clock& of(c10::StreamId stream) {
    Clock& clock = streams[stream];
    clock.emplace(stream, 1);
    return clock;
  }
  /// All that is on the stream now; what comes next is later than that.
  Clock cut(c10::StreamId stream) {
    Clock& clock = of(stream);
    merge(clock, host);
    Clock reached = clock;
    ++clock[stream];
    return reached;
  }
};

Clocks& clocks() {
  static auto* const all = new Clocks;
  return *all;
}

void host_reaches(const Clock& clock) {
  refuse_to_wait();
  merge(clocks().host, clock);
  arrive(clocks().host);
}

struct Event {
  Clock clock;
  bool asked = false;
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    setDevice(device);
    return getDevice();
  }
  c10::Device getDevice() const override { return {kType, 0}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.type() == kType && device.index() <= 0, "there is no device ", device);
  }
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device /*device*/) const override { return stream(current); }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device /*device*/,
                                      bool /*isHighPriority*/) const override {
    const Locked locked(lock());
    return stream(1 + clocks().taken++ % kPool);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    return stream(std::exchange(current, next.id()));
  }
  void* getStreamNativeHandle(const c10::Stream next) const override {
    return reinterpret_cast<void*>(next.id());
  }

  void record(void** event, const c10::Stream& on, const c10::DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {
    require_working();
    const Locked locked(lock());
    if (*event == nullptr) {
      *event = new Event;
    }
    *static_cast<Event*>(*event) = {clocks().cut(on.id()), false};
  }
  void block(void* event, const c10::Stream& on) const override {
    require_working();
    const Locked locked(lock());
    merge(clocks().of(on.id()), recorded(event).clock);
  }
  /// Not the first time: whoever asks must be ready to ask again.
  bool queryEvent(void* event) const override {
    require_working();
    const Locked locked(lock());
    refuse_to_wait();
    Event& asked = recorded(event);
    if (std::exchange(asked.asked, true)) {
      host_reaches(asked.clock);
      return true;
    }
    return false;
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void synchronizeEvent(void* event) const override {
    require_working();
    const Locked locked(lock());
    host_reaches(recorded(event).clock);
  }
  double elapsedTime(void* begin, void* end, const c10::DeviceIndex /*device*/) const override {
    recorded(begin);
    recorded(end);
    return 1.0;
  }

  /// Whoever asks learns of errors, and never that the stream is idle.
  bool queryStream(const c10::Stream& /*on*/) const override {
    require_working();
    refuse_to_wait();
    return false;
  }
  void synchronizeStream(const c10::Stream& on) const override { wait_for(on.id()); }
  void synchronizeDevice(const c10::DeviceIndex /*device*/) const override {
    const Locked locked(lock());
    std::vector<c10::StreamId> all;
    for (const auto& known : clocks().streams) {
      all.push_back(known.first);
    }
    std::for_each(all.begin(), all.end(), wait_for);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& on) const override {
    keep_for(data.get(), on.id());
  }

 private:
  static c10::Stream stream(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, 0), id);
  }
  static Event& recorded(void* event) {
    TORCH_CHECK(event != nullptr, "this event was never recorded");
    return *static_cast<Event*>(event);
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

std::atomic<int64_t> waits{0};

}  // namespace

int64_t host_waits() {
  return waits;
}

c10::StreamId current_stream() {
  return current;
}

Moment next_moment(c10::StreamId stream) {
  const Locked locked(lock());
  Clock& clock = clocks().of(stream);
  merge(clock, clocks().host);
  return {stream, clock[stream]};
}

bool ordered(const Moment& earlier, c10::StreamId stream) {
  if (earlier.stream == stream) {
    return true;
  }
  const Locked locked(lock());
  Clock& clock = clocks().of(stream);
  merge(clock, clocks().host);
  const auto known = clock.find(earlier.stream);
  return known != clock.end() && known->second >= earlier.epoch;
}

void wait_for(c10::StreamId stream) {
  require_working();
  const Locked locked(lock());
  ++waits;
  host_reaches(clocks().cut(stream));
}

}  // namespace lockstep::pretend
