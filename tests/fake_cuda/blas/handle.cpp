#include "handle.h"

#include <mutex>
#include <set>
#include <utility>

#include "../common/work.h"

namespace fake_cuda {
namespace {

/// Handles that exist. They are never freed: a program may use one that it has destroyed.
struct LiveHandles {
  std::mutex mutex;
  std::set<cublasHandle_t> handles;
};

LiveHandles& live_handles() {
  static auto* const live = new LiveHandles;
  return *live;
}

}  // namespace

cublasStatus_t check_handle(const char* function, cublasHandle_t handle) {
  LiveHandles& live = live_handles();
  const std::lock_guard<std::mutex> lock(live.mutex);
  return live.handles.contains(handle)
             ? CUBLAS_STATUS_SUCCESS
             : refuse(function, "there is no such handle", CUBLAS_STATUS_NOT_INITIALIZED);
}

cublasStatus_t enqueue_on_handle(cublasHandle_t handle, Product product) {
  if (device_of(handle->stream) != handle->device) {
    return refuse(product.name, "the stream belongs to another device than the handle",
                  CUBLAS_STATUS_EXECUTION_FAILED);
  }
  product.workspace = handle->workspace;
  product.workspace_bytes = handle->workspace_bytes;
  return enqueue_product(handle->stream, product);
}

Scale scale_of(cublasHandle_t handle, const void* scalar, cudaDataType type) {
  return Scale(scalar, type, handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE);
}

}  // namespace fake_cuda

using fake_cuda::check_handle;

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (handle == nullptr) {
    return fake_cuda::refuse(__func__, "no place for the handle");
  }
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  *handle = new cublasContext;
  (*handle)->device = device;
  auto& live = fake_cuda::live_handles();
  const std::lock_guard<std::mutex> lock(live.mutex);
  live.handles.insert(*handle);
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  const cublasStatus_t status = check_handle(__func__, handle);
  auto& live = fake_cuda::live_handles();
  const std::lock_guard<std::mutex> lock(live.mutex);
  live.handles.erase(handle);
  return status;
}

/// As in cuBLAS, a new stream takes the workspace away.
extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t handle,
                                                              cudaStream_t stream) {
  const cublasStatus_t status = check_handle(__func__, handle);
  if (status == CUBLAS_STATUS_SUCCESS) {
    handle->stream = stream;
    handle->workspace = nullptr;
    handle->workspace_bytes = 0;
  }
  return status;
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasGetStream_v2(cublasHandle_t handle,
                                                              cudaStream_t* stream) {
  const cublasStatus_t status = check_handle(__func__, handle);
  if (status == CUBLAS_STATUS_SUCCESS) {
    *stream = handle->stream;
  }
  return status;
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle,
                                                                 void* workspace, size_t bytes) {
  const cublasStatus_t status = check_handle(__func__, handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) {
    return fake_cuda::refuse(__func__, "the workspace is not aligned to 256 bytes");
  }
  handle->workspace = workspace;
  handle->workspace_bytes = bytes;
  return status;
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasSetMathMode(cublasHandle_t handle,
                                                             cublasMath_t math) {
  const cublasStatus_t status = check_handle(__func__, handle);
  if (status == CUBLAS_STATUS_SUCCESS) {
    handle->math = math;
  }
  return status;
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasGetMathMode(cublasHandle_t handle,
                                                             cublasMath_t* math) {
  const cublasStatus_t status = check_handle(__func__, handle);
  if (status == CUBLAS_STATUS_SUCCESS) {
    *math = handle->math;
  }
  return status;
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle,
                                                                   cublasPointerMode_t mode) {
  const cublasStatus_t status = check_handle(__func__, handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (mode != CUBLAS_POINTER_MODE_HOST && mode != CUBLAS_POINTER_MODE_DEVICE) {
    return fake_cuda::refuse(__func__, "no such mode");
  }
  handle->pointer_mode = mode;
  return status;
}

extern "C" FAKE_CUDA_EXPORT cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle,
                                                                   cublasPointerMode_t* mode) {
  const cublasStatus_t status = check_handle(__func__, handle);
  if (status == CUBLAS_STATUS_SUCCESS) {
    *mode = handle->pointer_mode;
  }
  return status;
}
