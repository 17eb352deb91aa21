// cudaStream...: what programs call.
#include <algorithm>

#include "../common/faults.h"
#include "capture.h"
#include "contexts.h"
#include "errors.h"

using namespace fake_cuda;

namespace {

/// Priorities are accepted and mean nothing: the seed chooses.
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

}  // namespace

extern "C" {

FAKE_CUDA_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_CUDA_ENTER();
  if (least != nullptr) {
    *least = kLeastPriority;
  }
  if (greatest != nullptr) {
    *greatest = kGreatestPriority;
  }
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                                          int priority) {
  FAKE_CUDA_ENTER();
  if (stream == nullptr || (flags & ~unsigned{cudaStreamNonBlocking}) != 0) {
    return fail(cudaErrorInvalidValue);
  }
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  *stream = Streams::get().make(flags, std::clamp(priority, kGreatestPriority, kLeastPriority));
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr || stream != handle) {  // default streams cannot be destroyed
    return fail(cudaErrorInvalidResourceHandle);
  }
  Captures::get().leave(*stream);
  Streams::get().remove(stream);
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  const CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  *priority = stream->priority;
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  const CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  *flags = stream->flags;
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  const CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  *device = stream->device;
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (const cudaError_t error = Captures::get().check_wait(*stream); error != cudaSuccess) {
    return fail(error);
  }
  Streams::get().wait_for(lock, *stream);
  return answer_of_wait();
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamQuery(cudaStream_t handle) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (const cudaError_t error = Captures::get().check_wait(*stream); error != cudaSuccess) {
    return fail(error);
  }
  return Streams::get().poll(lock, *stream) ? answer() : fail(cudaErrorNotReady);
}

FAKE_CUDA_EXPORT cudaError_t cudaDeviceSynchronize() {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  const int device = current_device();
  const cudaError_t error = Captures::get().check_wait_for_device(device);
  if (error != cudaSuccess) {
    return fail(error);
  }
  Streams::get().wait_for_device(lock, device);
  return answer_of_wait();
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event,
                                                 unsigned flags) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr || !Events::get().is_event(event)) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  Captures& captures = Captures::get();
  if (flags == cudaEventWaitExternal && stream->capture) {
    if (const cudaError_t error = captures.record(*stream, Piece("wait for an event"));
        error != cudaSuccess) {
      return fail(error);
    }
    stream->tips.front()->kind = CUgraphNode_st::Kind::kWaitForEvent;
    stream->tips.front()->event = event;
    return cudaSuccess;
  }
  if (!event->capture && !event->item) {
    return cudaSuccess;  // never recorded: nothing to wait for
  }
  // One that orders nothing cannot be missed. Without the check of races nobody knows.
  const bool orders = event->capture ? !captures.comes_before(*event, *stream)
                                     : !races_are_checked() || !WorkQueue::get().comes_before(
                                                                   *event->item, stream->last);
  if (orders && fails_now(Planted::kForgottenWait)) {
    return cudaSuccess;
  }
  if (event->capture || stream->capture) {
    return fail(captures.wait_for_event(*stream, *event));
  }
  if (const cudaError_t error = captures.check_legacy(*stream, true); error != cudaSuccess) {
    return fail(error);
  }
  Streams::get().append(*stream, Piece("wait for an event"), {event->item});
  return answer();
}

FAKE_CUDA_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                                                void* data) {
  // After an error the function is not called, as CUDA's manual says.
  return enqueue(stream, "host function", [function, data] {
    {
      // The function may tell the program that what comes before it is done.
      const WorkQueue::Lock queue_lock(WorkQueue::get().mutex());
      WorkQueue::get().host_has_waited_for(*running_item());
    }
    HostFunctionScope scope;
    function(data);
    return true;
  });
}

}  // extern "C"
