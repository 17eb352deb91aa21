// Memory: what programs call. The memory itself is in memory/.
#include <cstring>

#include "../memory/memory.h"
#include "capture.h"
#include "contexts.h"
#include "enqueue.h"
#include "errors.h"

using namespace fake_cuda;

namespace {

/// Each of these calls could wait for a device, which would disturb a capture.
cudaError_t check_capture() {
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  return fail(Captures::get().check_unsafe_call());
}

/// What may use the memory is waited for before it is given back, as CUDA does.
cudaError_t wait_for_users(const void* memory) {
  const Allocation allocation = allocation_of(reinterpret_cast<uintptr_t>(memory));
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  if (const cudaError_t error = Captures::get().check_unsafe_call(); error != cudaSuccess) {
    return fail(error);
  }
  for (int device = 0; device < number_of_devices(); ++device) {
    if (allocation.is_host || device == allocation.device) {
      Streams::get().wait_for_device(lock, device);
    }
  }
  return answer();
}

}  // namespace

extern "C" {

FAKE_CUDA_EXPORT cudaError_t cudaMalloc(void** memory, size_t bytes) {
  FAKE_CUDA_ENTER();
  if (const cudaError_t error = check_capture(); error != cudaSuccess) {
    return error;
  }
  if (bytes == 0) {
    *memory = nullptr;
    return cudaSuccess;
  }
  return fail(allocate_device(memory, bytes, current_device()));
}

FAKE_CUDA_EXPORT cudaError_t cudaFree(void* memory) {
  FAKE_CUDA_ENTER();
  if (memory == nullptr) {
    return cudaSuccess;
  }
  if (const cudaError_t error = wait_for_users(memory); error != cudaSuccess) {
    return error;
  }
  return fail(release_device(memory));
}

FAKE_CUDA_EXPORT cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  FAKE_CUDA_ENTER();
  if (const cudaError_t error = check_capture(); error != cudaSuccess) {
    return error;
  }
  if (bytes == 0) {
    *memory = nullptr;
    return cudaSuccess;
  }
  return fail(allocate_host(memory, bytes, current_device()));
}

FAKE_CUDA_EXPORT cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}

FAKE_CUDA_EXPORT cudaError_t cudaFreeHost(void* memory) {
  FAKE_CUDA_ENTER();
  if (memory == nullptr) {
    return cudaSuccess;
  }
  if (const cudaError_t error = wait_for_users(memory); error != cudaSuccess) {
    return error;
  }
  return fail(release_host(memory));
}

FAKE_CUDA_EXPORT cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  FAKE_CUDA_ENTER();
  if (const cudaError_t error = check_capture(); error != cudaSuccess) {
    return error;
  }
  if (memory == nullptr || bytes == 0) {
    return fail(cudaErrorInvalidValue);
  }
  return fail(register_host(memory, bytes, current_device()));
}

FAKE_CUDA_EXPORT cudaError_t cudaHostUnregister(void* memory) {
  FAKE_CUDA_ENTER();
  if (const cudaError_t error = wait_for_users(memory); error != cudaSuccess) {
    return error;
  }
  return fail(unregister_host(memory));
}

FAKE_CUDA_EXPORT cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  FAKE_CUDA_ENTER();
  if (!allocation_of(reinterpret_cast<uintptr_t>(host)).is_host) {
    return fail(cudaErrorInvalidValue);
  }
  *device = host;
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  FAKE_CUDA_ENTER();
  free_bytes_of(current_device(), free, total);
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                                      const void* memory) {
  FAKE_CUDA_ENTER();
  *attributes = {};
  const Allocation allocation = allocation_of(reinterpret_cast<uintptr_t>(memory));
  if (allocation.bytes == 0) {  // CUDA's manual: no error for memory that CUDA does not know
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    return cudaSuccess;
  }
  void* address = const_cast<void*>(memory);
  attributes->type = allocation.is_host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = allocation.device < 0 ? current_device() : allocation.device;
  attributes->devicePointer = address;
  attributes->hostPointer = allocation.is_host ? address : nullptr;
  return cudaSuccess;
}

// Memory in the order of streams: it is there at once, and goes when its stream has come so far.

FAKE_CUDA_EXPORT cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  FAKE_CUDA_ENTER();
  if (is_capturing(stream)) {
    return refuse(cudaErrorNotSupported, "cudaMallocAsync in a capture");
  }
  return fail(allocate_device(memory, bytes, device_of(stream)));
}

FAKE_CUDA_EXPORT cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  FAKE_CUDA_ENTER();
  if (memory == nullptr) {
    return cudaSuccess;
  }
  if (is_capturing(stream)) {
    return refuse(cudaErrorNotSupported, "cudaFreeAsync in a capture");
  }
  const Allocation allocation = allocation_of(reinterpret_cast<uintptr_t>(memory));
  if (allocation.begin != reinterpret_cast<uintptr_t>(memory) || allocation.is_host) {
    return fail(cudaErrorInvalidValue);
  }
  return enqueue(stream, "free", [memory, bytes = allocation.bytes] {
    write_bytes(memory, bytes);  // as a race with whoever still uses it
    if (const cudaError_t error = release_device(memory); error != cudaSuccess) {
      throw DeviceFault(error, "memory was freed twice");
    }
    return true;
  });
}

FAKE_CUDA_EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  FAKE_CUDA_ENTER();
  if (!is_device(device)) {
    return fail(cudaErrorInvalidDevice);
  }
  static char pools[64];  // only their addresses matter
  *pool = reinterpret_cast<cudaMemPool_t>(&pools[device]);
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  FAKE_CUDA_ENTER();
  return cudaSuccess;  // thresholds and reuse: nothing is kept or reused here
}

FAKE_CUDA_EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute,
                                                     void* value) {
  FAKE_CUDA_ENTER();
  if (attribute < cudaMemPoolAttrReservedMemCurrent || attribute > cudaMemPoolAttrUsedMemHigh) {
    return refuse(cudaErrorInvalidValue,
                  "cudaMemPoolGetAttribute of attribute " + std::to_string(attribute));
  }
  size_t free = 0;
  size_t total = 0;
  free_bytes_of(current_device(), &free, &total);
  const uint64_t used = total - free;
  std::memcpy(value, &used, sizeof(used));
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  FAKE_CUDA_ENTER();
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  FAKE_CUDA_ENTER();
  return cudaSuccess;
}

}  // extern "C"
