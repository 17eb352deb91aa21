#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::benchmarks {

/// Returns once `device` has done all that it was given; at once on the CPU.
inline void wait_for(c10::Device device) {
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }
}

}  // namespace lockstep::benchmarks
