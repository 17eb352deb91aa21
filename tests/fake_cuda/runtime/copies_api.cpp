// Copies and fills. Which of them wait for the host is in CUDA's manual, "API synchronization
// behavior"; where it leaves a choice, the later time is taken, which shows more faults.
#include <algorithm>
#include <cstring>
#include <memory>

#include "../memory/memory.h"
#include "capture.h"
#include "contexts.h"
#include "enqueue.h"
#include "errors.h"
#include "symbols.h"

using namespace fake_cuda;

namespace {

enum class Place { kPageable, kPinned, kDevice };

/// Rows of a rectangle; a plain copy is one row.
struct Side {
  char* memory = nullptr;
  size_t pitch = 0;
  Place place = Place::kPageable;
};

struct Copy {
  Side to;
  Side from;
  size_t width = 0;
  size_t height = 1;

  bool is_empty() const { return width == 0 || height == 0; }
  size_t extent(const Side& side) const { return (height - 1) * side.pitch + width; }
};

/// cudaErrorInvalidValue if the bytes leave an allocation, or lie where memory was freed.
cudaError_t find_place(const Copy& copy, Side* side) {
  const auto address = reinterpret_cast<uintptr_t>(side->memory);
  const Allocation allocation = allocation_of(address);
  if (allocation.bytes == 0) {
    side->place = Place::kPageable;
    return side->memory == nullptr || is_in_arena(address) ? cudaErrorInvalidValue : cudaSuccess;
  }
  side->place = allocation.is_host ? Place::kPinned : Place::kDevice;
  const bool fits = address + copy.extent(*side) <= allocation.begin + allocation.bytes;
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}

/// The kind says that a side is memory of the device: it must not be pageable memory of the host.
bool agrees(const Copy& copy, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault &&
         !(to_device && copy.to.place == Place::kPageable) &&
         !(from_device && copy.from.place == Place::kPageable);
}

void copy_rows(const Copy& copy) {
  for (size_t row = 0; row < copy.height; ++row) {
    char* to = copy.to.memory + row * copy.to.pitch;
    const char* from = copy.from.memory + row * copy.from.pitch;
    if (copy.from.place != Place::kPageable) {
      read_bytes(from, copy.width);
    }
    if (copy.to.place != Place::kPageable) {
      write_bytes(to, copy.width);
    }
    std::memmove(to, from, copy.width);
  }
}

/// The copy with what it reads taken aside now.
Work with_bytes_of_now(const Copy& copy) {
  auto aside = std::make_shared<std::vector<char>>(copy.width * copy.height);
  for (size_t row = 0; row < copy.height; ++row) {
    std::memcpy(aside->data() + row * copy.width, copy.from.memory + row * copy.from.pitch,
                copy.width);
  }
  Copy later = copy;
  later.from = {aside->data(), copy.width, Place::kPageable};
  return [later, aside] {
    copy_rows(later);
    return true;
  };
}

const char* name_of(const Copy& copy) {
  const bool to_device = copy.to.place == Place::kDevice;
  const bool from_device = copy.from.place == Place::kDevice;
  return to_device ? (from_device ? "copy on devices" : "copy to a device")
                   : (from_device ? "copy to the host" : "copy on the host");
}

/// `waits`: the call is not one of the ...Async.
cudaError_t copy_memory(Copy copy, cudaMemcpyKind kind, cudaStream_t handle, bool waits) {
  if (copy.is_empty()) {
    return answer();
  }
  for (Side* side : {&copy.to, &copy.from}) {
    if (const cudaError_t error = find_place(copy, side); error != cudaSuccess) {
      return fail(error);
    }
  }
  if (!agrees(copy, kind)) {
    return fail(cudaErrorInvalidValue);
  }
  const bool is_on_host = copy.to.place != Place::kDevice && copy.from.place != Place::kDevice;
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (waits) {
    if (const cudaError_t error = Captures::get().check_wait(*stream); error != cudaSuccess) {
      return fail(error);
    }
  }
  Piece piece(name_of(copy));
  if (copy.from.place == Place::kPageable && !stream->capture) {
    if (waits || copy.to.place != Place::kDevice) {
      Streams::get().wait_for(lock, *stream);  // before the copy begins, as the manual has it
    }
    piece.work = with_bytes_of_now(copy);
  } else {
    piece.work = [copy] {
      copy_rows(copy);
      return true;
    };
  }
  for (const Side* side : {&copy.to, &copy.from}) {
    if (side->place == Place::kPinned) {
      piece.host_ranges.push_back({side->memory, copy.extent(*side), side == &copy.to});
    }
  }
  const bool is_captured = stream->capture != nullptr;
  if (const cudaError_t error = enqueue_piece(*stream, std::move(piece)); error != cudaSuccess) {
    return fail(error);
  }
  const bool ends_on_host = copy.to.place != Place::kDevice;
  const bool is_read_late = copy.from.place == Place::kPinned;
  if (!is_captured && (is_on_host || copy.to.place == Place::kPageable ||
                       (waits && (ends_on_host || is_read_late)))) {
    const ItemPtr item = stream->last;
    WorkQueue::get().wait(lock, item);
  }
  return answer();
}

Copy plain(void* to, const void* from, size_t bytes) {
  return {{static_cast<char*>(to), bytes, Place::kPageable},
          {static_cast<char*>(const_cast<void*>(from)), bytes, Place::kPageable},
          bytes,
          1};
}

cudaError_t fill_memory(void* to, int value, size_t bytes, cudaStream_t handle, bool waits) {
  if (bytes == 0) {
    return answer();
  }
  Copy target = plain(to, to, bytes);
  if (const cudaError_t error = find_place(target, &target.to); error != cudaSuccess) {
    return fail(error);
  }
  if (target.to.place == Place::kPageable) {
    return fail(cudaErrorInvalidValue);
  }
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (waits) {
    if (const cudaError_t error = Captures::get().check_wait(*stream); error != cudaSuccess) {
      return fail(error);
    }
  }
  Piece piece("fill", [to, value, bytes] {
    write_bytes(to, bytes);
    std::memset(to, value, bytes);
    return true;
  });
  const bool is_pinned = target.to.place == Place::kPinned;
  if (is_pinned) {
    piece.host_ranges.push_back({to, bytes, true});
  }
  if (const cudaError_t error = enqueue_piece(*stream, std::move(piece)); error != cudaSuccess) {
    return fail(error);
  }
  if (waits && is_pinned) {  // a fill of a device's memory is asynchronous, also without a stream
    const ItemPtr item = stream->last;
    WorkQueue::get().wait(lock, item);
  }
  return answer();
}

}  // namespace

extern "C" {

FAKE_CUDA_EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                             cudaMemcpyKind kind, cudaStream_t stream) {
  FAKE_CUDA_ENTER();
  return copy_memory(plain(to, from, bytes), kind, stream, false);
}

FAKE_CUDA_EXPORT cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                                        cudaMemcpyKind kind) {
  FAKE_CUDA_ENTER();
  return copy_memory(plain(to, from, bytes), kind, cudaStreamLegacy, true);
}

FAKE_CUDA_EXPORT cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from,
                                                 int from_device, size_t bytes,
                                                 cudaStream_t stream) {
  FAKE_CUDA_ENTER();
  if (!is_device(to_device) || !is_device(from_device)) {
    return fail(cudaErrorInvalidDevice);
  }
  return copy_memory(plain(to, from, bytes), cudaMemcpyDeviceToDevice, stream, false);
}

FAKE_CUDA_EXPORT cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                                               size_t from_pitch, size_t width, size_t height,
                                               cudaMemcpyKind kind, cudaStream_t stream) {
  FAKE_CUDA_ENTER();
  if (width > to_pitch || width > from_pitch) {
    return fail(cudaErrorInvalidPitchValue);
  }
  Copy copy = plain(to, from, width);
  copy.to.pitch = to_pitch;
  copy.from.pitch = from_pitch;
  copy.height = height;
  return copy_memory(copy, kind, stream, false);
}

FAKE_CUDA_EXPORT cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes,
                                                size_t offset, cudaMemcpyKind kind) {
  FAKE_CUDA_ENTER();
  char* variable = nullptr;
  size_t size = 0;
  if (!find_variable(symbol, &variable, &size)) {
    return fail(cudaErrorInvalidSymbol);
  }
  if (offset + bytes > size) {
    return fail(cudaErrorInvalidValue);
  }
  return copy_memory(plain(variable + offset, from, bytes), kind, cudaStreamLegacy, true);
}

FAKE_CUDA_EXPORT cudaError_t cudaGetSymbolAddress(void** memory, const void* symbol) {
  FAKE_CUDA_ENTER();
  char* variable = nullptr;
  size_t size = 0;
  if (!find_variable(symbol, &variable, &size)) {
    return fail(cudaErrorInvalidSymbol);
  }
  *memory = variable;
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                                             cudaStream_t stream) {
  FAKE_CUDA_ENTER();
  return fill_memory(to, value, bytes, stream, false);
}

FAKE_CUDA_EXPORT cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  FAKE_CUDA_ENTER();
  return fill_memory(to, value, bytes, cudaStreamLegacy, true);
}

}  // extern "C"
