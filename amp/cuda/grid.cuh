#pragma once

#include <cuda_runtime.h>
#include <lockstep/amp/cuda/update_pack.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace lockstep::amp::cuda {

constexpr int kThreads = 256;
/// Enough threads under way to fill the memory's pipes on every device since sm_70.
constexpr int kBlocksPerProcessor = 8;

/// Blocks for `packs` packs of work on the current device: no more than run at once, so that what
/// is done once a block is done few times.
inline int blocks_for(int64_t packs) {
  int device = 0;
  int processors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int64_t wanted = (packs + kThreads - 1) / kThreads;
  return static_cast<int>(
      std::clamp<int64_t>(wanted, 1, int64_t{processors} * kBlocksPerProcessor));
}

/// Launches the kernel; last_problem() says whether that went well.
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

/// The sum over a block's threads, in all of them, always in the same order.
__device__ inline double block_sum(double value) {
  __shared__ double sums[kThreads];
  __syncthreads();  // the last call's sum has been read
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

/// The largest over the threads whose packs have one scale; all of them have read it before.
__device__ inline uint32_t largest_of_scale(uint32_t bits) {
  const unsigned lanes = ((1U << kScalePacks) - 1U) << (threadIdx.x % 32 & ~(kScalePacks - 1));
  for (int step = 1; step < kScalePacks; step *= 2) {
    const uint32_t other = __shfl_xor_sync(lanes, bits, step);
    bits = other > bits ? other : bits;
  }
  __syncwarp(lanes);  // an exchange orders no memory
  return bits;
}

/// What NarrowUpdate::store() needs of all threads with this thread's scale.
template <typename Update>
__device__ LargestBits agreed_largest(const NarrowUpdate<Update>& narrow,
                                      const PackValues& values) {
  LargestBits bits = narrow.largest(values);
  for (int m = 0; m < Update::kMoments; ++m) {
    if (narrow.arrays.moments[m].format == MomentFormat::int8) {
      bits.of[m] = largest_of_scale(bits.of[m]);
    }
  }
  return bits;
}

}  // namespace lockstep::amp::cuda
