// libcuda.so.1: the functions of the driver that LibTorch and lockstep call themselves. The state
// is libcudart's.
#include <cuda.h>
#include <cstdio>

#include "../runtime/contexts.h"
#include "../runtime/errors.h"

using namespace fake_cuda;

namespace {

thread_local CUcontext current_context = nullptr;

/// Handles of contexts: only their addresses matter.
char primary_contexts[64];

CUcontext handle_of(int device) {
  return reinterpret_cast<CUcontext>(&primary_contexts[device]);
}

/// The errors of both interfaces have the same numbers.
CUresult result_of(cudaError_t error) {
  return static_cast<CUresult>(error);
}

CUresult check_device(CUdevice device) {
  if (const cudaError_t error = initialize(); error != cudaSuccess) {
    return result_of(error);
  }
  const bool is_one = device >= 0 && device < number_of_devices();
  return is_one ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

extern "C" {

FAKE_CUDA_EXPORT CUresult cuInit(unsigned flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : result_of(initialize());
}

FAKE_CUDA_EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

FAKE_CUDA_EXPORT CUresult cuDeviceGetCount(int* number) {
  *number = 0;
  if (const cudaError_t error = initialize(); error != cudaSuccess) {
    return result_of(error);
  }
  *number = number_of_devices();
  return CUDA_SUCCESS;
}

FAKE_CUDA_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult error = check_device(ordinal); error != CUDA_SUCCESS) {
    return error;
  }
  *device = ordinal;
  return CUDA_SUCCESS;
}

FAKE_CUDA_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                               CUdevice device) {
  if (const CUresult error = check_device(device); error != CUDA_SUCCESS) {
    return error;
  }
  // The attributes of both interfaces have the same numbers too.
  return result_of(cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device));
}

FAKE_CUDA_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (const CUresult error = check_device(device); error != CUDA_SUCCESS) {
    return error;
  }
  *uuid = {};
  uuid->bytes[0] = static_cast<char>(device + 1);
  return CUDA_SUCCESS;
}

FAKE_CUDA_EXPORT CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  if (const CUresult error = check_device(device); error != CUDA_SUCCESS) {
    return error;
  }
  std::snprintf(name, static_cast<size_t>(size), "Fake CUDA");
  return CUDA_SUCCESS;
}

FAKE_CUDA_EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  if (const CUresult error = check_device(device); error != CUDA_SUCCESS) {
    return error;
  }
  cudaDeviceProp properties{};
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  *bytes = properties.totalGlobalMem;
  return result_of(error);
}

FAKE_CUDA_EXPORT CUresult cuDeviceGetPCIBusId(char* bus, int size, CUdevice device) {
  if (const CUresult error = check_device(device); error != CUDA_SUCCESS) {
    return error;
  }
  return result_of(cudaDeviceGetPCIBusId(bus, size, device));
}

FAKE_CUDA_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags,
                                                     int* active) {
  if (const CUresult error = check_device(device); error != CUDA_SUCCESS) {
    return error;
  }
  *flags = 0;
  *active = has_context(device) ? 1 : 0;
  return CUDA_SUCCESS;
}

FAKE_CUDA_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const CUresult error = check_device(device); error != CUDA_SUCCESS) {
    return error;
  }
  make_context(device, "cuDevicePrimaryCtxRetain");
  *context = handle_of(device);
  return CUDA_SUCCESS;
}

FAKE_CUDA_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  if (const cudaError_t error = initialize(); error != cudaSuccess) {
    return result_of(error);
  }
  // cudaSetDevice makes the device's context the current one.
  const int device = current_device();
  *context = current_context != nullptr ? current_context
             : has_context(device)      ? handle_of(device)
                                        : nullptr;
  return CUDA_SUCCESS;
}

FAKE_CUDA_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  current_context = context;
  for (int device = 0; device < number_of_devices(); ++device) {
    if (context == handle_of(device)) {
      return result_of(cudaSetDevice(device));
    }
  }
  return context == nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

FAKE_CUDA_EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = driver_error_name(error);
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

FAKE_CUDA_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = driver_error_name(error) == nullptr ? nullptr : error_text(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // extern "C"
