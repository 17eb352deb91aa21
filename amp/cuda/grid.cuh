#pragma once

#include <cuda_runtime.h>
#include <lockstep/amp/cuda/update_pack.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <type_traits>

namespace lockstep::amp::cuda {

constexpr int kThreads = 256;

/// The number of blocks of this kernel that one multiprocessor runs at once, by registers and
/// shared memory. Queried once for each kernel. Any thread.
template <typename... Parameters>
int blocks_at_once(void (*kernel)(Parameters...), int threads, int device) {
  static std::mutex mutex;
  static std::map<std::tuple<void (*)(Parameters...), int, int>, int> known;
  const std::lock_guard<std::mutex> lock(mutex);
  int& blocks = known[{kernel, threads, device}];
  if (blocks == 0) {
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, /*dynamicSMemSize=*/0);
  }
  return blocks;
}

/// The number of blocks for `wanted` blocks of work on the current device: at most as many as run
/// at once, so that all start and end together and work per block is done few times.
template <typename... Parameters>
int one_wave(void (*kernel)(Parameters...), int threads, int64_t wanted) {
  int device = 0;
  int processors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int64_t most = int64_t{processors} * blocks_at_once(kernel, threads, device);
  return static_cast<int>(std::max<int64_t>(std::min(wanted, most), 1));
}

/// The number of blocks of kThreads for `packs` packs of work.
template <typename... Parameters>
int blocks_for(void (*kernel)(Parameters...), int64_t packs) {
  return one_wave(kernel, kThreads, (packs + kThreads - 1) / kThreads);
}

/// Launches the kernel; last_problem() returns the error.
template <typename... Parameters>
void start(void (*kernel)(Parameters...), dim3 blocks, int threads, void* stream,
           std::decay_t<Parameters>... arguments) {
  void* pointers[] = {&arguments...};
  cudaLaunchKernel(kernel, blocks, dim3(static_cast<unsigned>(threads)), pointers,
                   /*sharedMem=*/0, static_cast<cudaStream_t>(stream));
}

inline const char* last_problem() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorName(error);
}

__device__ inline int64_t first_pack() {
  return blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
}
__device__ inline int64_t pack_stride() {
  return gridDim.x * int64_t{blockDim.x};
}

/// The sum over a block's threads, always in the same order; all threads get it.
__device__ inline double block_sum(double value) {
  __shared__ double sums[kThreads];
  __syncthreads();  // all threads have read the last call's sum
  sums[threadIdx.x] = value;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
    }
  }
  __syncthreads();
  return sums[0];
}

}  // namespace lockstep::amp::cuda
