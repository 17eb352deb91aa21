#pragma once

#include "device.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

/// What the kernels use of CUDA, on the host: the same names, so that a .cu file is C++ as it is.
/// device.h says what is checked. All threads of a block run on one thread of the host, whose
/// `thread_local` variables they share.
#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __launch_bounds__(threads)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

using cudaStream_t = struct CUstream_st*;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101,
  cudaErrorLaunchFailure = 719
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76
};

namespace lockstep::emulated_cuda {

/// Of the running thread.
extern uint3 thread_index;
extern uint3 block_index;
extern dim3 block_size;
extern dim3 grid_size;

struct Place {
  const char* file = "";
  int line = 0;
};

void barrier(Place place) noexcept;
/// The value of lane `this lane ^ step`.
uint64_t exchange(unsigned mask, uint64_t value, int step, Place place) noexcept;

/// One parameter of a kernel.
struct Argument {
  const void* data;
  size_t bytes;
  size_t alignment;
};

struct Launch {
  dim3 blocks;
  dim3 threads;
  size_t argument_bytes;
  std::function<void()> thread;  // what each thread does
  const void* kernel;            // the function, for its name
  std::vector<Argument> arguments;
};
cudaError_t launch(const Launch& launch);

template <typename... Parameters, size_t... k>
std::function<void()> call(void (*kernel)(Parameters...), void** arguments,
                           std::index_sequence<k...>) {
  return [=] { kernel(*static_cast<Parameters*>(arguments[k])...); };
}

template <typename... Parameters, size_t... k>
std::vector<Argument> list(void (*)(Parameters...), void** arguments, std::index_sequence<k...>) {
  return {{arguments[k], sizeof(Parameters), alignof(Parameters)}...};
}

}  // namespace lockstep::emulated_cuda

inline constexpr auto& threadIdx = lockstep::emulated_cuda::thread_index;
inline constexpr auto& blockIdx = lockstep::emulated_cuda::block_index;
inline constexpr auto& blockDim = lockstep::emulated_cuda::block_size;
inline constexpr auto& gridDim = lockstep::emulated_cuda::grid_size;

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  lockstep::emulated_cuda::barrier({file, line});
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int step, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = lockstep::emulated_cuda::exchange(mask, bits, step, {file, line});
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <typename... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                             void** arguments, size_t /*shared_bytes*/, cudaStream_t /*stream*/) {
  constexpr std::index_sequence_for<Parameters...> kAll;
  return lockstep::emulated_cuda::launch({blocks, threads, (sizeof(Parameters) + ... + 0),
                                          lockstep::emulated_cuda::call(kernel, arguments, kAll),
                                          reinterpret_cast<const void*>(kernel),
                                          lockstep::emulated_cuda::list(kernel, arguments, kAll)});
}
template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int /*threads*/,
                                                          size_t /*shared_bytes*/) {
  *blocks = lockstep::emulated_cuda::device().blocks_at_once;
  ++lockstep::emulated_cuda::device().occupancy_questions;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);
/// The same: what was wrong.
const char* cudaGetErrorName(cudaError_t error);
