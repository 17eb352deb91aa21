#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>

/// A CUDA without a device: libraries with the names of CUDA's, which LibTorch's CUDA build loads
/// in their place. This header is what the parts know of each other: who enqueues work on a stream
/// (copies, kernels, matrix products, collectives) and who executes it (runtime/work_queue.h).
namespace fake_cuda {

/// Marks what the other fake libraries call in libcudart.
#define FAKE_CUDA_EXPORT __attribute__((visibility("default")))

/// One piece of a stream's work. Returns false if it cannot finish yet (a collective whose peers
/// have not arrived); it is called again while work of other streams runs. Throws DeviceFault.
using Work = std::function<bool()>;

/// What a kernel or a collective did wrong. It becomes the sticky error of the process, as on a
/// device: every later call returns `code`.
struct FAKE_CUDA_EXPORT DeviceFault : std::runtime_error {
  DeviceFault(cudaError_t error, const std::string& what) : std::runtime_error(what), code(error) {}
  cudaError_t code;
};

/// Appends work to a stream, or to the graph that the stream records. `what` names it in messages.
/// A recorded piece is executed at each launch of the graph, so it must not change its own state
/// except on purpose. Threads: any.
FAKE_CUDA_EXPORT cudaError_t enqueue(cudaStream_t stream, const std::string& what, Work work);

/// Whether the stream records a graph.
FAKE_CUDA_EXPORT bool is_capturing(cudaStream_t stream);

/// The device of a stream: of the current thread for the default streams.
FAKE_CUDA_EXPORT int device_of(cudaStream_t stream);

/// Call inside of Work, before the bytes are read or written: checks that they lie in one
/// allocation (else throws DeviceFault, cudaErrorIllegalAddress) and, with FAKE_CUDA_RACES=1, that
/// an event orders this access after each earlier conflicting one (else prints a race).
FAKE_CUDA_EXPORT void read_bytes(const void* memory, size_t bytes);
FAKE_CUDA_EXPORT void write_bytes(const void* memory, size_t bytes);

/// An environment variable, or `otherwise` if it is not set.
FAKE_CUDA_EXPORT const char* setting(const char* name, const char* otherwise);
FAKE_CUDA_EXPORT long setting(const char* name, long otherwise);

}  // namespace fake_cuda
