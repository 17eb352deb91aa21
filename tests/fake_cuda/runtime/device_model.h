#pragma once

#include <cuda_runtime_api.h>

/// What kind of device the fake one is: FAKE_CUDA_CC=75 (the default) or 80.
namespace fake_cuda {

struct DeviceModel {
  int major = 7;
  int minor = 5;
  int multiprocessors = 4;  // few: programs size their grids by it
  int threads_per_multiprocessor = 1024;
  int blocks_per_multiprocessor = 16;
  int registers_per_multiprocessor = 65536;
  size_t shared_per_multiprocessor = 65536;
  size_t shared_per_block = 49152;
  size_t shared_per_block_opt_in = 65536;
  size_t reserved_shared_per_block = 0;
};

/// Aborts for a compute capability that it does not know.
const DeviceModel& device_model();

inline constexpr int kMaxThreadsPerBlock = 1024;
inline constexpr int kMaxBlock[3] = {1024, 1024, 64};
inline constexpr int kMaxGrid[3] = {2147483647, 65535, 65535};
inline constexpr int kWarp = 32;
inline constexpr int kCudaVersion = 13000;

cudaDeviceProp properties_of(int device);

}  // namespace fake_cuda
