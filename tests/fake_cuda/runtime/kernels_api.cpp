// Kernels: what programs call.
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "../machine/kernels.h"
#include "capture.h"
#include "contexts.h"
#include "device_model.h"
#include "enqueue.h"
#include "errors.h"
#include "symbols.h"

using namespace fake_cuda;

namespace {

/// What cudaFuncSetAttribute has set, by the function.
struct DynamicShared {
  std::mutex mutex;
  std::unordered_map<const void*, size_t> most;
};

DynamicShared& dynamic_shared() {
  static auto& made = *new DynamicShared;
  return made;
}

size_t most_dynamic_shared(const void* function, const KernelAttributes& attributes) {
  DynamicShared& all = dynamic_shared();
  std::lock_guard lock(all.mutex);
  const auto found = all.most.find(function);
  const size_t by_default = device_model().shared_per_block;
  return found != all.most.end()                ? found->second
         : attributes.shared_bytes < by_default ? by_default - attributes.shared_bytes
                                                : 0;
}

/// Registers are given to a warp in groups of 256.
int registers_of_warp(const KernelAttributes& attributes) {
  return std::max((attributes.registers * kWarp + 255) / 256 * 256, 256);
}

/// CUDA's manual: "Features and technical specifications" and cudaLaunchKernel.
cudaError_t check_configuration(const void* function, const KernelAttributes& attributes, dim3 grid,
                                dim3 block, size_t shared) {
  const unsigned blocks[3] = {block.x, block.y, block.z};
  const unsigned grids[3] = {grid.x, grid.y, grid.z};
  for (int i = 0; i < 3; ++i) {
    if (blocks[i] == 0 || blocks[i] > unsigned(kMaxBlock[i]) || grids[i] == 0 ||
        grids[i] > unsigned(kMaxGrid[i])) {
      return cudaErrorInvalidConfiguration;
    }
  }
  const size_t threads = size_t{block.x} * block.y * block.z;
  if (threads > kMaxThreadsPerBlock) {
    return cudaErrorInvalidConfiguration;
  }
  if (shared > most_dynamic_shared(function, attributes)) {
    return cudaErrorInvalidValue;
  }
  const size_t warps = (threads + kWarp - 1) / kWarp;
  if (threads > size_t(attributes.max_threads) ||
      warps * registers_of_warp(attributes) > size_t(device_model().registers_per_multiprocessor)) {
    return cudaErrorLaunchOutOfResources;
  }
  return cudaSuccess;
}

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** parameters, size_t shared,
                   cudaStream_t handle) {
  const std::string name = kernel_of(function);
  if (name.empty()) {
    return fail(cudaErrorInvalidDeviceFunction);
  }
  Piece piece(interned(name));
  piece.is_kernel = true;
  const WorkQueue::Preparation preparation;
  try {
    const cudaError_t error =
        check_configuration(function, attributes_of(name), grid, block, shared);
    if (error != cudaSuccess) {
      return fail(error);
    }
    piece.work = prepare_launch(name, grid, block, parameters, shared);
  } catch (const DeviceFault& fault) {
    std::fprintf(stderr, "fake cuda: %s: %s\n", name.c_str(), fault.what());
    return fail(fault.code);
  }
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  // CUDA's manual: a kernel's stream belongs to the current device.
  if (stream == nullptr || stream->device != current_device()) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  return fail(enqueue_piece(*stream, std::move(piece)));
}

struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

}  // namespace

extern "C" {

FAKE_CUDA_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                      CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

FAKE_CUDA_EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared,
                                                        void* stream) {
  if (configurations.empty()) {
    return fail(cudaErrorMissingConfiguration);
  }
  const Configuration top = configurations.back();
  configurations.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block,
                                              void** parameters, size_t shared,
                                              cudaStream_t stream) {
  FAKE_CUDA_ENTER();
  return launch(function, grid, block, parameters, shared, stream);
}

FAKE_CUDA_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                                void** parameters, size_t shared,
                                                cudaStream_t stream) {
  FAKE_CUDA_ENTER();
  return launch(kernel, grid, block, parameters, shared, stream);
}

FAKE_CUDA_EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration,
                                                 const void* function, void** parameters) {
  FAKE_CUDA_ENTER();
  for (unsigned i = 0; i < configuration->numAttrs; ++i) {
    const cudaLaunchAttributeID id = configuration->attrs[i].id;
    // A later begin of the next kernel, and priorities, only allow what is late here anyway.
    if (id != cudaLaunchAttributeProgrammaticStreamSerialization &&
        id != cudaLaunchAttributePriority && id != cudaLaunchAttributeIgnore) {
      return refuse(cudaErrorNotSupported, "launch attribute " + std::to_string(id));
    }
  }
  return launch(function, configuration->gridDim, configuration->blockDim, parameters,
                configuration->dynamicSmemBytes, configuration->stream);
}

FAKE_CUDA_EXPORT cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3, dim3, void**,
                                                         size_t, cudaStream_t) {
  FAKE_CUDA_ENTER();
  return refuse(cudaErrorNotSupported, "cooperative launch of " + kernel_of(function));
}

FAKE_CUDA_EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                                   const void* function) {
  FAKE_CUDA_ENTER();
  const std::string name = kernel_of(function);
  if (name.empty()) {
    return fail(cudaErrorInvalidDeviceFunction);
  }
  try {
    const KernelAttributes known = attributes_of(name);
    const DeviceModel& model = device_model();
    *attributes = {};
    attributes->numRegs = known.registers;
    attributes->maxThreadsPerBlock = std::min(
        known.max_threads, model.registers_per_multiprocessor / registers_of_warp(known) * kWarp);
    attributes->sharedSizeBytes = known.shared_bytes;
    attributes->localSizeBytes = known.local_bytes;
    attributes->constSizeBytes = known.constant_bytes;
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(most_dynamic_shared(function, known));
    attributes->binaryVersion = attributes->ptxVersion = model.major * 10 + model.minor;
    attributes->preferredShmemCarveout = -1;
  } catch (const DeviceFault& fault) {
    std::fprintf(stderr, "fake cuda: %s: %s\n", name.c_str(), fault.what());
    return fail(fault.code);
  }
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute,
                                                  int value) {
  FAKE_CUDA_ENTER();
  const std::string name = kernel_of(function);
  if (name.empty()) {
    return fail(cudaErrorInvalidDeviceFunction);
  }
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
    return cudaSuccess;  // a hint
  }
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
    return refuse(cudaErrorNotSupported, "cudaFuncSetAttribute " + std::to_string(attribute));
  }
  try {
    const size_t room = device_model().shared_per_block_opt_in;
    if (value < 0 || size_t(value) + attributes_of(name).shared_bytes > room) {
      return fail(cudaErrorInvalidValue);
    }
  } catch (const DeviceFault& fault) {
    return fail(fault.code);
  }
  DynamicShared& all = dynamic_shared();
  std::lock_guard lock(all.mutex);
  all.most[function] = static_cast<size_t>(value);
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int threads, size_t shared, unsigned) {
  FAKE_CUDA_ENTER();
  const std::string name = kernel_of(function);
  if (name.empty() || threads <= 0) {
    return fail(name.empty() ? cudaErrorInvalidDeviceFunction : cudaErrorInvalidValue);
  }
  try {
    const KernelAttributes known = attributes_of(name);
    const DeviceModel& model = device_model();
    *blocks = 0;
    if (check_configuration(function, known, 1, threads, shared) != cudaSuccess) {
      return cudaSuccess;  // no block of this kind can run
    }
    const int warps = (threads + kWarp - 1) / kWarp;
    const size_t memory = known.shared_bytes + shared + model.reserved_shared_per_block;
    const int by_memory = memory == 0 ? model.blocks_per_multiprocessor
                                      : static_cast<int>(model.shared_per_multiprocessor / memory);
    *blocks = std::min(
        {model.blocks_per_multiprocessor, model.threads_per_multiprocessor / kWarp / warps,
         model.registers_per_multiprocessor / (registers_of_warp(known) * warps), by_memory});
  } catch (const DeviceFault& fault) {
    return fail(fault.code);
  }
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                           const void* function,
                                                                           int threads,
                                                                           size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared,
                                                                cudaOccupancyDefault);
}

}  // extern "C"
