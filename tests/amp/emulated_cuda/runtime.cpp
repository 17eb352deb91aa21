#include <atomic>
#include <mutex>

#include "launch_count.h"
#include "multiprocessor.h"

namespace lockstep::emulated_cuda {
namespace {

struct LastError {
  cudaError_t code = cudaSuccess;
  std::string text;
};

/// Of the calling host thread, as CUDA keeps it.
LastError& last_error() {
  static thread_local LastError error;
  return error;
}

cudaError_t refused(cudaError_t code, std::string why) {
  last_error() = {code, std::move(why)};
  return code;
}

std::atomic<int64_t> launches{0};

bool within(const dim3& size, int64_t x, int64_t y, int64_t z) {
  return size.x >= 1 && size.y >= 1 && size.z >= 1 && size.x <= x && size.y <= y && size.z <= z;
}

std::string text_of(const dim3& size) {
  return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
}

}  // namespace

int64_t launch_count() {
  return launches;
}

Device& device() {
  static Device device;
  return device;
}

void barrier(Place place) noexcept {
  Multiprocessor::only().barrier(place);
}
uint64_t exchange(unsigned mask, uint64_t value, int step, Place place) noexcept {
  return Multiprocessor::only().exchange(mask, value, step, place);
}

cudaError_t launch(const Launch& launch) {
  constexpr size_t kArgumentBytes = 4096;
  const dim3& threads = launch.threads;
  if (!within(launch.blocks, 0x7fffffff, 0xffff, 0xffff)) {
    return refused(cudaErrorInvalidConfiguration,
                   "no grid has " + text_of(launch.blocks) + " blocks");
  }
  if (!within(threads, 1024, 1024, 64) || int64_t{threads.x} * threads.y * threads.z > 1024) {
    return refused(cudaErrorInvalidConfiguration, "no block has " + text_of(threads) + " threads");
  }
  if (launch.argument_bytes > kArgumentBytes) {
    return refused(
        cudaErrorInvalidConfiguration,
        "arguments of " + std::to_string(launch.argument_bytes) + " bytes are more than 4096");
  }
  ++launches;
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  if (device().before) {
    device().before(launch);
  }
  std::string problem = Multiprocessor::only().run_grid(launch, device().order);
  if (device().after) {
    device().after(launch);
  }
  return problem.empty() ? cudaSuccess : refused(cudaErrorLaunchFailure, std::move(problem));
}

}  // namespace lockstep::emulated_cuda

using namespace lockstep::emulated_cuda;

cudaError_t cudaGetDevice(int* number) {
  *number = device().number;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  if (number != device().number) {
    return refused(cudaErrorInvalidDevice, "there is one device");
  }
  *value = attribute == cudaDevAttrMultiProcessorCount      ? device().processors
           : attribute == cudaDevAttrComputeCapabilityMajor ? device().capability / 10
                                                            : device().capability % 10;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t code = last_error().code;
  last_error().code = cudaSuccess;
  return code;
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : last_error().text.c_str();
}

const char* cudaGetErrorName(cudaError_t error) {
  return cudaGetErrorString(error);
}
