#pragma once

#include <cublas_api.h>

#include <cstddef>

#include "product.h"

/// The state of a handle. A handle belongs to the device that was current when it was made.
struct cublasContext {
  int device = 0;
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;  // kept, not used
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};

namespace fake_cuda {

/// CUBLAS_STATUS_NOT_INITIALIZED if there is no such handle (any more).
cublasStatus_t check_handle(const char* function, cublasHandle_t handle);

/// Checks that the handle's stream is one of its device, and enqueues.
cublasStatus_t enqueue_on_handle(cublasHandle_t handle, Product product);

/// alpha or beta by the handle's pointer mode. `scalar` is not null.
Scale scale_of(cublasHandle_t handle, const void* scalar, cudaDataType type);

}  // namespace fake_cuda
