#include "enqueue.h"

#include "../memory/memory.h"
#include "capture.h"
#include "contexts.h"
#include "errors.h"

namespace fake_cuda {

cudaError_t enqueue_piece(CUstream_st& stream, Piece piece) {
  if (stream.capture) {
    return Captures::get().record(stream, std::move(piece));
  }
  if (const cudaError_t error = Captures::get().check_legacy(stream, true); error != cudaSuccess) {
    return error;
  }
  if (piece.is_kernel) {
    count_launch(piece);
  }
  Streams::get().append(stream, std::move(piece));
  return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t handle, const std::string& what, Work work) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  return fail(enqueue_piece(*stream, Piece(interned(what), std::move(work))));
}

bool is_capturing(cudaStream_t handle) {
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  const CUstream_st* stream = Streams::get().find(handle);
  return stream != nullptr && stream->capture != nullptr;
}

int device_of(cudaStream_t handle) {
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  const CUstream_st* stream = Streams::get().find(handle);
  return stream == nullptr ? current_device() : stream->device;
}

namespace {

void access_bytes(const void* memory, size_t bytes, bool writes) {
  if (bytes == 0) {
    return;
  }
  check_range(memory, bytes, writes ? "writes" : "reads");
  const Item* item = running_item();
  if (item != nullptr && races_are_checked()) {
    check_access({item->lane, item->number, &item->before, item->piece.what}, memory, bytes,
                 writes);
  }
}

}  // namespace

void read_bytes(const void* memory, size_t bytes) {
  access_bytes(memory, bytes, false);
}
void write_bytes(const void* memory, size_t bytes) {
  access_bytes(memory, bytes, true);
}

}  // namespace fake_cuda
