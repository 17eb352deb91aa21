#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/resource.h>

namespace lockstep::benchmarks {

/// Returns once `device` has done all that it was given; at once on the CPU.
inline void wait_for(c10::Device device) {
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
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
