#pragma once

#include <c10/core/Device.h>

namespace lockstep::amp {

/// The current stream of `device` (cudaStream_t).
void* current_stream(c10::Device device);

/// Throws Error with the kernel and `problem`, the name of a CUDA error at its launch (null: no
/// error). Code: environment if the device has no such kernel, usage if it cannot be captured,
/// out_of_memory, else peer_lost: a launch also reports an earlier failure of the device.
void check_call(const char* problem, const char* kernel);

}  // namespace lockstep::amp
