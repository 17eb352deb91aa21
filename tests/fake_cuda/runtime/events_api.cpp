// cudaEvent...: what programs call.
#include "capture.h"
#include "contexts.h"
#include "errors.h"

using namespace fake_cuda;

namespace {

constexpr unsigned kEventFlags =
    cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;

}  // namespace

extern "C" {

FAKE_CUDA_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  FAKE_CUDA_ENTER();
  if (event == nullptr || (flags & ~kEventFlags) != 0) {
    return fail(cudaErrorInvalidValue);
  }
  if ((flags & cudaEventInterprocess) != 0 && (flags & cudaEventDisableTiming) == 0) {
    return fail(cudaErrorInvalidValue);  // CUDA's manual: interprocess events have no timing
  }
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  *event = Events::get().make(flags);
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

FAKE_CUDA_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  if (!Events::get().is_event(event)) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  Events::get().remove(event);
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle,
                                                      unsigned flags) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  // CUDA's manual: event and stream must be on the same device.
  if (stream == nullptr || !Events::get().is_event(event) || stream->device != event->device) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (stream->capture) {
    if (stream->capture->is_broken) {
      return fail(cudaErrorStreamCaptureInvalidated);
    }
    if (flags == cudaEventRecordExternal) {
      Captures::get().record(*stream, Piece("record of an event"));
      stream->tips.front()->kind = CUgraphNode_st::Kind::kRecordEvent;
      stream->tips.front()->event = event;
      return cudaSuccess;
    }
    event->capture = stream->capture;
    event->tips = stream->tips;
    event->item = nullptr;
    return cudaSuccess;
  }
  if (const cudaError_t error = Captures::get().check_legacy(*stream, true); error != cudaSuccess) {
    return fail(error);
  }
  event->capture = nullptr;
  event->item = Streams::get().append(*stream, Piece("record of an event"));
  return answer();
}

FAKE_CUDA_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

FAKE_CUDA_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  if (!Events::get().is_event(event)) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (const cudaError_t error = Captures::get().check_wait(*event); error != cudaSuccess) {
    return fail(error);
  }
  const ItemPtr item = event->item;
  return WorkQueue::get().poll(lock, item) ? answer() : fail(cudaErrorNotReady);
}

FAKE_CUDA_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  if (!Events::get().is_event(event)) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (const cudaError_t error = Captures::get().check_wait(*event); error != cudaSuccess) {
    return fail(error);
  }
  const ItemPtr item = event->item;
  WorkQueue::get().wait(lock, item);
  return answer_of_wait();
}

FAKE_CUDA_EXPORT cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                                  cudaEvent_t end) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  for (const cudaEvent_t event : {begin, end}) {
    if (!Events::get().is_event(event) || (event->flags & cudaEventDisableTiming) != 0) {
      return fail(cudaErrorInvalidResourceHandle);
    }
    if (event->capture) {
      return fail(cudaErrorCapturedEvent);
    }
    if (!event->item) {
      return fail(cudaErrorInvalidResourceHandle);  // never recorded
    }
  }
  if (begin->device != end->device) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (!begin->item->done || !end->item->done) {
    return fail(cudaErrorNotReady);
  }
  using Milliseconds = std::chrono::duration<float, std::milli>;
  *milliseconds = Milliseconds(end->item->ended - begin->item->ended).count();
  return answer();
}

}  // extern "C"
