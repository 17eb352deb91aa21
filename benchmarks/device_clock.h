#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/resource.h>

#include <functional>
#include <string>

#include "recorder.h"

namespace lockstep::benchmarks {

/// Returns once `device` has done all that it was given; at once on the CPU.
inline void wait_for(c10::Device device) {
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }
}

/// "cpu", "cuda" (its first device) or "cuda:N".
inline c10::Device device_named(const std::string& name) {
  c10::Device device(name);
  if (!device.is_cpu() && !device.has_index()) {
    device.set_index(0);
  }
  return device;
}

/// Times `groups` groups of `count` calls, each from when the device has nothing to do to when it
/// has done the group; one more group warms up before. `prepare` is called before each group,
/// outside the time.
inline void time_groups(
    Series& series, c10::Device device, int groups, int count, const std::function<void(int)>& call,
    const std::function<void()>& prepare = [] {}) {
  for (int group = -1; group < groups; ++group) {
    prepare();
    wait_for(device);
    if (group >= 0) {
      series.begin();
    }
    for (int i = 0; i < count; ++i) {
      call(i);
    }
    wait_for(device);
    if (group >= 0) {
      series.end();
    }
  }
}

/// Of the device by all that runs there; on the CPU, the most that this process had.
inline int64_t used_bytes(c10::Device device) {
  if (!device.is_cpu()) {
    const auto [free, total] =
        c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
    return static_cast<int64_t>(total - free);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{1024} * usage.ru_maxrss;
}

}  // namespace lockstep::benchmarks
