#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

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

inline cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

inline const char* last_problem() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

__device__ inline int64_t first_pack() {
  return blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
}
__device__ inline int64_t pack_stride() {
  return gridDim.x * int64_t{blockDim.x};
}

}  // namespace lockstep::amp::cuda
