#pragma once

#include <c10/core/Device.h>

namespace lockstep::amp {

/// The cudaStream_t that work on `device` goes to.
void* current_stream(c10::Device device);

/// Throws Error with what CUDA says of the launch of `kernel`; null: all is well.
void check_call(const char* problem, const char* kernel);

}  // namespace lockstep::amp
