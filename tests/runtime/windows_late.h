#pragma once

#include <cstdint>

#include "test_device.h"

namespace lockstep::testing {

/// How many windows later than on the host a Trainer on device() acts on what a window did.
inline int64_t windows_late() {
  return device().is_cuda() ? 1 : 0;
}

}  // namespace lockstep::testing
