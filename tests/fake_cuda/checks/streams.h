#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "expect.h"

/// What the checks of streams, captures and graphs share. Their kernels are fills and copies: no
/// machine code is needed. The rules named "manual: ..." are CUDA's own.
namespace fake_cuda::checks {

inline void must(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "unexpected: %s\n", cudaGetErrorName(error));
    std::exit(3);
  }
}

inline void expect_error(cudaError_t got, cudaError_t wanted, const std::string& what) {
  expect(got == wanted,
         what + (got == wanted ? "" : std::string(": got ") + cudaGetErrorName(got)));
  cudaGetLastError();
}

constexpr size_t kBytes = 1000;

/// Memory of a device; `value` of its first and last byte is asked for in the order of a stream.
class DeviceBytes {
 public:
  DeviceBytes() { must(cudaMalloc(reinterpret_cast<void**>(&memory_), kBytes)); }
  ~DeviceBytes() { cudaFree(memory_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  char* get() const { return memory_; }

  void fill(int value, cudaStream_t stream) const {
    must(cudaMemsetAsync(memory_, value, kBytes, stream));
  }
  void copy_from(const DeviceBytes& other, cudaStream_t stream) const {
    must(cudaMemcpyAsync(memory_, other.memory_, kBytes, cudaMemcpyDeviceToDevice, stream));
  }
  /// -1 if the bytes differ.
  int value(cudaStream_t stream) const {
    std::vector<unsigned char> bytes(kBytes);
    must(cudaMemcpyAsync(bytes.data(), memory_, kBytes, cudaMemcpyDeviceToHost, stream));
    must(cudaStreamSynchronize(stream));
    for (const unsigned char byte : bytes) {
      if (byte != bytes[0]) {
        return -1;
      }
    }
    return bytes[0];
  }

 private:
  char* memory_ = nullptr;
};

/// Page-locked memory, zeroed.
class PinnedBytes {
 public:
  PinnedBytes() {
    must(cudaHostAlloc(reinterpret_cast<void**>(&memory_), kBytes, cudaHostAllocDefault));
    std::memset(memory_, 0, kBytes);
  }
  ~PinnedBytes() { cudaFreeHost(memory_); }
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;
  char* get() const { return memory_; }

 private:
  char* memory_ = nullptr;
};

class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking) {
    must(cudaStreamCreateWithFlags(&stream_, flags));
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT: as a handle

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDisableTiming) {
    must(cudaEventCreateWithFlags(&event_, flags));
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }  // NOLINT: as a handle

 private:
  cudaEvent_t event_ = nullptr;
};

inline void order(cudaStream_t first, cudaStream_t second) {
  const Event event;
  must(cudaEventRecord(event, first));
  must(cudaStreamWaitEvent(second, event, 0));
}

/// Keeps a stream from going on until it is opened.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) {
    must(cudaLaunchHostFunc(
        stream,
        [](void* gate) {
          while (!static_cast<Gate*>(gate)->is_open_) {
            std::this_thread::yield();
          }
        },
        this));
  }
  void open() { is_open_ = true; }

 private:
  std::atomic<bool> is_open_{false};
};

inline int finish() {
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace fake_cuda::checks
