#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "../common/work.h"

/// The memory of the fake devices and page-locked host memory.
namespace fake_cuda {

struct Allocation {
  uintptr_t begin = 0;
  size_t bytes = 0;  // 0: there is no allocation
  int device = -1;
  bool is_host = false;        // page-locked
  bool is_registered = false;  // cudaHostRegister: the program owns it
};

/// Fresh memory holds NaN (bytes 0xff); an allocation ends where a guard page begins. No address is
/// given out twice, and freed memory is closed, so that a use after free always shows. Each device
/// has FAKE_CUDA_MIB of memory; the FAKE_CUDA_FAIL_MALLOC-th allocation (from 0; of devices and
/// page-locked memory together) fails. All functions: any thread.
cudaError_t allocate_device(void** memory, size_t bytes, int device);
cudaError_t allocate_host(void** memory, size_t bytes, int device);
cudaError_t register_host(void* memory, size_t bytes, int device);
/// The caller waits for work that may use the memory first, as cudaFree does; for a release in the
/// order of a stream he calls write_bytes() on the allocation, so that races with it are found.
/// No-op for null; cudaErrorInvalidValue for what was not allocated (or freed before).
cudaError_t release_device(void* memory);
cudaError_t release_host(void* memory);
cudaError_t unregister_host(void* memory);
/// The allocation that contains the address; it also finds variables of kernels (add_variable).
Allocation allocation_of(uintptr_t address);
/// Grows with each change, so that a reader may keep what allocation_of() said.
uint64_t memory_version();
/// Whether the address lies in a range that only this file gives out (also if it is freed now):
/// what is neither here nor in an allocation is memory of the program that is not page-locked.
bool is_in_arena(uintptr_t address);
/// Throws DeviceFault (cudaErrorIllegalAddress) unless the bytes lie in one allocation. `verb` is
/// "reads" or "writes".
void check_range(const void* memory, size_t bytes, const char* verb);
/// For messages: the allocation around the address, or the nearest one, its size, and when it was
/// freed.
std::string describe_address(uintptr_t address);
void free_bytes_of(int device, size_t* free, size_t* total);
/// Memory of a `__device__` variable, zeroed. It belongs to all devices (device -1).
void* add_variable(size_t bytes);

/// For the report at exit.
struct MemoryCounts {
  long device_allocations = 0;  // calls, successful or not
  long host_allocations = 0;
  long releases = 0;
  long live = 0;  // allocations that nobody has released, variables excepted
};
MemoryCounts memory_counts();

}  // namespace fake_cuda
