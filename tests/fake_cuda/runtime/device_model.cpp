#include "device_model.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "../common/work.h"

namespace fake_cuda {

const DeviceModel& device_model() {
  static const DeviceModel model = [] {
    const long capability = setting("FAKE_CUDA_CC", 75L);
    DeviceModel made;  // 7.5
    if (capability == 80) {
      made.major = 8;
      made.minor = 0;
      made.threads_per_multiprocessor = 2048;
      made.blocks_per_multiprocessor = 32;
      made.shared_per_multiprocessor = 167936;
      made.shared_per_block_opt_in = 166912;
      made.reserved_shared_per_block = 1024;
    } else if (capability != 75) {
      std::fprintf(stderr, "fake cuda: FAKE_CUDA_CC=%ld is not 75 or 80\n", capability);
      std::abort();
    }
    return made;
  }();
  return model;
}

cudaDeviceProp properties_of(int device) {
  const DeviceModel& model = device_model();
  cudaDeviceProp properties{};
  std::snprintf(properties.name, sizeof(properties.name), "Fake CUDA device");
  properties.uuid.bytes[0] = static_cast<char>(device + 1);
  properties.major = model.major;
  properties.minor = model.minor;
  properties.totalGlobalMem = static_cast<size_t>(setting("FAKE_CUDA_MIB", 4096L)) << 20;
  properties.totalConstMem = 65536;
  properties.multiProcessorCount = model.multiprocessors;
  properties.warpSize = kWarp;
  properties.maxThreadsPerBlock = kMaxThreadsPerBlock;
  std::copy(std::begin(kMaxBlock), std::end(kMaxBlock), properties.maxThreadsDim);
  std::copy(std::begin(kMaxGrid), std::end(kMaxGrid), properties.maxGridSize);
  properties.maxThreadsPerMultiProcessor = model.threads_per_multiprocessor;
  properties.maxBlocksPerMultiProcessor = model.blocks_per_multiprocessor;
  properties.regsPerBlock = model.registers_per_multiprocessor;
  properties.regsPerMultiprocessor = model.registers_per_multiprocessor;
  properties.sharedMemPerBlock = model.shared_per_block;
  properties.sharedMemPerBlockOptin = model.shared_per_block_opt_in;
  properties.sharedMemPerMultiprocessor = model.shared_per_multiprocessor;
  properties.reservedSharedMemPerBlock = model.reserved_shared_per_block;
  properties.memPitch = 2147483647;
  properties.textureAlignment = 512;
  properties.texturePitchAlignment = 32;
  properties.l2CacheSize = 4 << 20;
  properties.memoryBusWidth = 256;
  properties.asyncEngineCount = 3;
  properties.concurrentKernels = 1;
  properties.unifiedAddressing = 1;
  properties.canMapHostMemory = 1;
  properties.streamPrioritiesSupported = 1;
  properties.hostRegisterSupported = 1;
  properties.canUseHostPointerForRegisteredMem = 1;
  properties.memoryPoolsSupported = 1;
  properties.pciBusID = device + 1;
  return properties;
}

}  // namespace fake_cuda
