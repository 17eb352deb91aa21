// Kernels with a race, for a sanitizer that must report it: racing_kernels shared|blocks|warp
#include "emulated_cuda/cuda_runtime.h"

#include <cstdio>
#include <cstring>

namespace {

constexpr unsigned kThreads = 64;

__global__ void turn_around_without_barrier(int* values) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = values[threadIdx.x];
  values[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

/// Both blocks write the same elements.
__global__ void write_twice(int* values) {
  __shared__ int first;
  if (threadIdx.x == 0) {
    first = 1;
  }
  __syncthreads();
  values[threadIdx.x] = first;
}

/// An exchange orders no memory.
__global__ void read_a_neighbour(int* values) {
  values[threadIdx.x] = __shfl_xor_sync(~0U, static_cast<int>(threadIdx.x), 1);
  values[threadIdx.x] += values[threadIdx.x ^ 1U];
}

int launch(void (*kernel)(int*), unsigned blocks) {
  static int values[kThreads] = {};
  int* pointer = values;
  void* arguments[] = {&pointer};
  return cudaLaunchKernel(kernel, blocks, kThreads, arguments, 0, nullptr) == cudaSuccess ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  const char* const which = count == 2 ? arguments[1] : "";
  if (std::strcmp(which, "shared") == 0) {
    return launch(turn_around_without_barrier, 1);
  }
  if (std::strcmp(which, "blocks") == 0) {
    return launch(write_twice, 2);
  }
  if (std::strcmp(which, "warp") == 0) {
    return launch(read_a_neighbour, 1);
  }
  std::puts("usage: racing_kernels shared|blocks|warp");
  return 2;
}
