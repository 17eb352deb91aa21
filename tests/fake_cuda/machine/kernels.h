#pragma once

#include <vector_types.h>

#include <cstddef>
#include <string>

#include "../common/work.h"

/// Kernels by name: their machine code comes from the cubins in FAKE_CUDA_CODE (machine_code.py).
namespace fake_cuda {

/// What a cubin says of a kernel.
struct KernelAttributes {
  int registers = 0;
  int max_threads = 1024;
  size_t shared_bytes = 0;  // static
  size_t local_bytes = 0;
  size_t constant_bytes = 0;
};

/// Throws DeviceFault (cudaErrorNoKernelImageForDevice) if no cubin has the kernel.
KernelAttributes attributes_of(const std::string& kernel);

/// A launch with its own copy of the parameters. `parameters`: as of cudaLaunchKernel; their number
/// and sizes are those of the cubin. Throws DeviceFault if there is no such kernel, or if its code
/// has an instruction that the machine does not know.
Work prepare_launch(const std::string& kernel, dim3 grid, dim3 block, void** parameters,
                    size_t dynamic_shared_bytes);

/// The memory of a `__device__` variable; `bytes` is at least its size. Made on the first call.
void* variable_of(const std::string& name, size_t bytes);

/// Instructions of warps that all kernels have executed so far.
long instructions_executed();

}  // namespace fake_cuda
