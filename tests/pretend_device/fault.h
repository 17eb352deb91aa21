#pragma once

#include <cstdint>

namespace lockstep::pretend {

/// A fault of the pretend device. The operations of the device are counted from here on, from 0.
struct Fault {
  int64_t operation = 0;
  /// CUDA's error: 700, an illegal address, stays: each later call throws it, and memory that a
  /// stream may still use cannot be given back, as by LibTorch's allocators. 209, no kernel image:
  /// operations throw it, all else works.
  int32_t code = 700;
};
void plant(const Fault& fault);
/// The device is as new. Returns how many operations there were since plant().
int64_t mend();

/// Each operation of the device calls the first; each other call of the device, and what gives back
/// memory that streams use, the second. Both throw c10::AcceleratorError.
void begin_operation();
void require_working();

}  // namespace lockstep::pretend
