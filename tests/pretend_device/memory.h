#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "streams.h"

namespace lockstep::pretend {

/// A pretend device's memory. Its addresses belong to pages that nobody may read or write, so that
/// a host that uses one is stopped there; the same bytes lie readable at host_address(). Memory
/// that is fresh, or was given back, holds 0xff: NaN in every floating point type.
///
/// The device's memory is handed out as LibTorch's allocator for CUDA does: what a stream gives
/// back goes to the same stream again, at once.

bool is_device_address(const void* address);
/// Where the bytes of a device address can be used; every other address, and null, is returned.
void* host_address(const void* address);
template <typename T>
T* on_host(T* address) {
  return static_cast<T*>(host_address(address));
}

enum class Access { read, write };
struct Use {
  uintptr_t begin;
  uintptr_t end;
  Access access;
  Moment moment;
};

/// Says that the next operation of `stream` does this to [data, data + bytes) of the device. Throws
/// c10::Error where another stream has used the same bytes, one of the two writes, and no event
/// orders them; or where the bytes are nobody's.
void touch(const void* data, size_t bytes, Access access, c10::StreamId stream);

/// The memory that begins at `data` is not handed out again before `stream` is done with it.
void keep_for(const void* data, c10::StreamId stream);

/// Saves what lies in the device's memory and puts it back at its end. What is allocated in between
/// comes from memory of its own, which is used for nothing else afterwards.
class SavedMemory {
 public:
  struct Contents {
    std::vector<char> bytes;
    std::map<uintptr_t, std::vector<Use>> uses;
  };

  SavedMemory();
  ~SavedMemory();
  SavedMemory(const SavedMemory&) = delete;
  SavedMemory& operator=(const SavedMemory&) = delete;

 private:
  Contents contents_;
};

bool is_pinned(const void* address);
c10::Allocator* pinned_allocator();

/// Host memory that a stream writes: `write` is done when the host waits for that; until then
/// the memory holds 0xff.
void write_later(void* host, size_t bytes, const Moment& moment, std::function<void()> write);
/// The host has waited for these.
void arrive(const Clock& reached);
/// What is still to be written to these bytes, for a stream that reads them.
void write_now(const void* host, size_t bytes, c10::StreamId reader);

}  // namespace lockstep::pretend
