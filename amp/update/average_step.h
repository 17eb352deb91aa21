#pragma once

#include <lockstep/amp/host_device.h>

namespace lockstep::amp {

/// One step of an exponential moving average, `rest` = 1 - decay.
LOCKSTEP_HOST_DEVICE float moved_towards(float average, float value, float rest) {
  return average + rest * (value - average);
}

}  // namespace lockstep::amp
