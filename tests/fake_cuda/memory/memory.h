#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "../runtime/work.h"

/// The memory of the fake devices and page-locked host memory.
namespace fake_cuda {

struct Allocation {
  uintptr_t begin = 0;
  size_t bytes = 0;  // 0: there is no allocation
  int device = -1;
  bool is_host = false;      // page-locked
  bool is_registered = false;  // cudaHostRegister: the program owns it
};

/// Fresh and freed memory holds NaN; a guard page follows each allocation. The n-th allocation can
/// be made to fail, and each device has FAKE_CUDA_MIB of memory. All functions: any thread.
cudaError_t allocate_device(void** memory, size_t bytes, int device);
cudaError_t allocate_host(void** memory, size_t bytes, int device);
cudaError_t register_host(void* memory, size_t bytes, int device);
/// No-op for null; cudaErrorInvalidValue for what was not allocated (or freed before).
cudaError_t release_device(void* memory);
cudaError_t release_host(void* memory);
cudaError_t unregister_host(void* memory);
/// The allocation that contains the address; it also finds variables of kernels (add_variable).
Allocation allocation_of(uintptr_t address);
/// Grows with each change, so that a reader may keep what allocation_of() said.
uint64_t memory_version();
void free_bytes_of(int device, size_t* free, size_t* total);
/// Memory of a `__device__` variable, zeroed.
void* add_variable(size_t bytes);

}  // namespace fake_cuda
