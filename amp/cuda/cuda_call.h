#pragma once

#include <c10/core/Device.h>

namespace lockstep::amp {

/// The cudaStream_t that work on `device` goes to.
void* current_stream(c10::Device device);

/// Throws Error with the name of CUDA's error at the launch of `kernel`; null: all is well. Code:
/// environment where the device has no such kernel, usage where it may not be recorded,
/// out_of_memory, else peer_lost: a launch also says what has broken the device before.
void check_call(const char* problem, const char* kernel);

}  // namespace lockstep::amp
