#pragma once

#include <c10/core/Device.h>

namespace lockstep::amp {

/// The current stream of `device` (cudaStream_t).
void* current_stream(c10::Device device);

/// Throws Error with the kernel and `problem`, the name of a CUDA error at its launch (null: no
/// error), and with its code and advice in cuda_errors.h. A launch also reports an earlier failure
/// of the device.
void check_call(const char* problem, const char* kernel);

}  // namespace lockstep::amp
