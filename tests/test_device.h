#pragma once

#include <ATen/ATen.h>

namespace lockstep::testing {

/// Where tests run that are built for the CPU and, by lockstep_add_gpu_test, once more for a GPU.
inline c10::Device device() {
#ifdef LOCKSTEP_TEST_DEVICE
  return c10::Device(LOCKSTEP_TEST_DEVICE);
#else
  return c10::Device(c10::DeviceType::CPU);
#endif
}

inline at::TensorOptions on_device(at::ScalarType dtype = at::kFloat) {
  return at::TensorOptions().dtype(dtype).device(device());
}

}  // namespace lockstep::testing
