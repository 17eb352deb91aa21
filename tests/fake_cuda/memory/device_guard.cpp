#include "device_guard.h"

#include <sys/mman.h>

#include <map>
#include <mutex>

#include "memory.h"

namespace fake_cuda {
namespace {

constexpr uintptr_t kPage = 4096;

/// Which allocations are open.
struct OpenMemory {
  std::mutex mutex;
  std::map<uintptr_t, size_t> bytes;  // by first address
};

OpenMemory& open_memory() {
  static auto& made = *new OpenMemory;
  return made;
}

void protect(uintptr_t begin, size_t bytes, int protection) {
  const uintptr_t first = begin / kPage * kPage;
  const uintptr_t end = (begin + bytes + kPage - 1) / kPage * kPage;
  mprotect(reinterpret_cast<void*>(first), end - first, protection);
}

}  // namespace

void close_device_memory() {
  OpenMemory& open = open_memory();
  const std::lock_guard lock(open.mutex);
  for (const auto& [begin, bytes] : open.bytes) {
    protect(begin, bytes, PROT_NONE);
  }
  open.bytes.clear();
}

void guard_device_memory(const void* memory, size_t bytes) {
  protect(reinterpret_cast<uintptr_t>(memory), bytes, PROT_NONE);
}

void forget_device_memory(const void* memory) {
  OpenMemory& open = open_memory();
  const std::lock_guard lock(open.mutex);
  open.bytes.erase(reinterpret_cast<uintptr_t>(memory));
}

bool open_device_memory(uintptr_t address) {
  const Allocation allocation = allocation_of(address);
  if (allocation.bytes == 0 || allocation.is_host || allocation.device < 0) {
    return false;
  }
  OpenMemory& open = open_memory();
  const std::lock_guard lock(open.mutex);
  protect(allocation.begin, allocation.bytes, PROT_READ | PROT_WRITE);
  open.bytes[allocation.begin] = allocation.bytes;
  return true;
}

}  // namespace fake_cuda
