#pragma once

#include <lockstep/amp/host_device.h>

#include <cstdint>

namespace lockstep::amp {

/// What one update's kernels read, in memory of the device they run on: filled in once per update
/// by the decision (after consensus), never by the host in between.
struct StepState {
  float gradient_factor = 1.0F;  // wire gradient * this = gradient: 1 / scale * clip coefficient
  float learning_rate_factor = 1.0F;  // the schedule's factor; multiplies each group's own rate
  int64_t update = 1;                 // number of this update, from 1: bias corrections use it
  bool skip = false;                  // overflow or error somewhere: kernels write nothing
};

/// StepState::gradient_factor of a loss scale and a clip coefficient: rounded once, so that without
/// clipping it is the inverse scale of torch.amp.GradScaler.
LOCKSTEP_HOST_DEVICE float gradient_factor(double scale, double clip = 1.0) {
  return static_cast<float>(1.0 / scale * clip);
}

}  // namespace lockstep::amp
