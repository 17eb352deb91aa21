// Devices: what programs call.
#include <cstdio>
#include <map>
#include <mutex>
#include <set>

#include "contexts.h"
#include "device_model.h"
#include "errors.h"

using namespace fake_cuda;

namespace {

/// The calls that need no context work also after an error of a kernel.
cudaError_t check_device(int device) {
  if (const cudaError_t error = initialize(); error != cudaSuccess) {
    return fail(error);
  }
  return is_device(device) ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

std::map<cudaDeviceAttr, long> attributes_of_device(int device) {
  const cudaDeviceProp p = properties_of(device);
  return {
      {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
      {cudaDevAttrMaxBlockDimX, p.maxThreadsDim[0]},
      {cudaDevAttrMaxBlockDimY, p.maxThreadsDim[1]},
      {cudaDevAttrMaxBlockDimZ, p.maxThreadsDim[2]},
      {cudaDevAttrMaxGridDimX, p.maxGridSize[0]},
      {cudaDevAttrMaxGridDimY, p.maxGridSize[1]},
      {cudaDevAttrMaxGridDimZ, p.maxGridSize[2]},
      {cudaDevAttrMaxSharedMemoryPerBlock, static_cast<long>(p.sharedMemPerBlock)},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<long>(p.sharedMemPerBlockOptin)},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor,
       static_cast<long>(p.sharedMemPerMultiprocessor)},
      {cudaDevAttrReservedSharedMemoryPerBlock, static_cast<long>(p.reservedSharedMemPerBlock)},
      {cudaDevAttrTotalConstantMemory, static_cast<long>(p.totalConstMem)},
      {cudaDevAttrWarpSize, p.warpSize},
      {cudaDevAttrMaxRegistersPerBlock, p.regsPerBlock},
      {cudaDevAttrMaxRegistersPerMultiprocessor, p.regsPerMultiprocessor},
      {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
      {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
      {cudaDevAttrMaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor},
      {cudaDevAttrComputeCapabilityMajor, p.major},
      {cudaDevAttrComputeCapabilityMinor, p.minor},
      {cudaDevAttrClockRate, 1000000},
      {cudaDevAttrMemoryClockRate, 1000000},
      {cudaDevAttrGlobalMemoryBusWidth, p.memoryBusWidth},
      {cudaDevAttrL2CacheSize, p.l2CacheSize},
      {cudaDevAttrAsyncEngineCount, p.asyncEngineCount},
      {cudaDevAttrConcurrentKernels, p.concurrentKernels},
      {cudaDevAttrUnifiedAddressing, p.unifiedAddressing},
      {cudaDevAttrCanMapHostMemory, p.canMapHostMemory},
      {cudaDevAttrStreamPrioritiesSupported, p.streamPrioritiesSupported},
      {cudaDevAttrHostRegisterSupported, p.hostRegisterSupported},
      {cudaDevAttrCanUseHostPointerForRegisteredMem, p.canUseHostPointerForRegisteredMem},
      {cudaDevAttrMemoryPoolsSupported, p.memoryPoolsSupported},
      {cudaDevAttrPciBusId, p.pciBusID},
      {cudaDevAttrPciDeviceId, p.pciDeviceID},
      {cudaDevAttrPciDomainId, p.pciDomainID},
      {cudaDevAttrIntegrated, 0},
      {cudaDevAttrEccEnabled, 0},
      {cudaDevAttrManagedMemory, 0},
      {cudaDevAttrConcurrentManagedAccess, 0},
      {cudaDevAttrPageableMemoryAccess, 0},
      {cudaDevAttrCooperativeLaunch, 0},  // a launch's blocks run one after the other
      {cudaDevAttrComputeMode, cudaComputeModeDefault},
      {cudaDevAttrGPUDirectRDMASupported, 0},
      {cudaDevAttrIpcEventSupport, 0},
      {cudaDevAttrClusterLaunch, 0},
  };
}

}  // namespace

extern "C" {

FAKE_CUDA_EXPORT cudaError_t cudaGetDeviceCount(int* number) {
  *number = 0;
  if (const cudaError_t error = initialize(); error != cudaSuccess) {
    return fail(error);
  }
  *number = number_of_devices();
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t error = initialize(); error != cudaSuccess) {
    return fail(error);
  }
  *device = current_device();
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = check_device(device); error != cudaSuccess) {
    return error;
  }
  set_current_device(device);
  make_context(device, "cudaSetDevice");  // since CUDA 12, says the manual
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = check_device(device); error != cudaSuccess) {
    return error;
  }
  *properties = properties_of(device);
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                                    int device) {
  if (const cudaError_t error = check_device(device); error != cudaSuccess) {
    return error;
  }
  const auto known = attributes_of_device(device);
  const auto found = known.find(attribute);
  if (found == known.end()) {
    return refuse(cudaErrorInvalidValue,
                  "cudaDeviceGetAttribute of attribute " + std::to_string(attribute));
  }
  *value = static_cast<int>(found->second);
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (const cudaError_t error = check_device(device); error != cudaSuccess) {
    return error;
  }
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (const cudaError_t error = check_device(device); error != cudaSuccess) {
    return error;
  }
  if (const cudaError_t error = check_device(peer); error != cudaSuccess) {
    return error;
  }
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  FAKE_CUDA_ENTER();
  if (!is_device(peer) || peer == current_device()) {
    return fail(cudaErrorInvalidDevice);
  }
  if (flags != 0) {
    return fail(cudaErrorInvalidValue);
  }
  static std::mutex mutex;
  static std::set<std::pair<int, int>> enabled;
  std::lock_guard lock(mutex);
  const bool is_new = enabled.insert({current_device(), peer}).second;
  return is_new ? cudaSuccess : fail(cudaErrorPeerAccessAlreadyEnabled);
}

FAKE_CUDA_EXPORT cudaError_t cudaProfilerStart() {
  return cudaSuccess;
}
FAKE_CUDA_EXPORT cudaError_t cudaProfilerStop() {
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t
cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                 cudaDriverEntryPointQueryResult* result) {
  // LibTorch asks for what newer drivers have, and can do without.
  if (setting("FAKE_CUDA_LOG", 0L) != 0) {
    std::fprintf(stderr, "fake cuda: the driver has no %s\n", name);
  }
  *function = nullptr;
  if (result != nullptr) {
    *result = cudaDriverEntryPointSymbolNotFound;
  }
  return fail(cudaErrorSymbolNotFound);
}

}  // extern "C"
