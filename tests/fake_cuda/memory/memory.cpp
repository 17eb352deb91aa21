#include "memory.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <shared_mutex>

#include "../common/faults.h"
#include "allocations.h"
#include "arena.h"
#include "device_guard.h"
#include "host_touches.h"
#include "races.h"

namespace fake_cuda {
namespace {

// NaN in each floating-point format, and an index that no tensor has.
constexpr unsigned char kFresh = 0xff;
constexpr long kDefaultMib = 4096;
constexpr int kMostDevices = 64;

/// All memory of the process: one arena for each device, for page-locked memory and for variables.
class Memory {
 public:
  /// Lives until the process ends: other libraries release memory in their destructors.
  static Memory& instance() {
    static Memory* memory = new Memory;
    return *memory;
  }

  cudaError_t allocate(void** memory, size_t bytes, int device, bool is_host);
  cudaError_t release(void* memory, bool is_host);
  cudaError_t add_registered(void* memory, size_t bytes, int device);
  cudaError_t remove_registered(void* memory);
  void* add_variable(size_t bytes);
  Allocation find(uintptr_t address) const;
  bool is_in_arena(uintptr_t address) const;
  std::string describe(uintptr_t address) const;
  void free_bytes_of(int device, size_t* free, size_t* total) const;
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  MemoryCounts counts() const;

 private:
  Memory();
  Arena* arena_of(int device);

  mutable std::shared_mutex mutex_;
  std::array<std::atomic<Arena*>, kMostDevices> arenas_ =
      {};                                       // made at a device's first allocation
  std::array<size_t, kMostDevices> used_ = {};  // bytes
  Arena host_arena_;
  Arena variable_arena_;
  Allocations allocations_;
  size_t bytes_of_device_ = 0;
  long variables_ = 0;
  MemoryCounts counts_;
  std::atomic<uint64_t> version_{1};
};

Memory::Memory() {
  bytes_of_device_ = static_cast<size_t>(setting("FAKE_CUDA_MIB", kDefaultMib)) << 20;
}

Arena* Memory::arena_of(int device) {
  Arena* arena = arenas_[device].load();
  if (arena == nullptr) {
    arena = new Arena;
    arenas_[device].store(arena);
  }
  return arena;
}

cudaError_t Memory::allocate(void** memory, size_t bytes, int device, bool is_host) {
  if (memory == nullptr || device < 0 || device >= kMostDevices) {
    return cudaErrorInvalidValue;
  }
  *memory = nullptr;
  if (bytes == 0) {
    return cudaSuccess;
  }
  const std::unique_lock lock(mutex_);
  ++(is_host ? counts_.host_allocations : counts_.device_allocations);
  if (fails_now(Planted::kFailedMalloc)) {
    return cudaErrorMemoryAllocation;
  }
  if (!is_host && bytes > bytes_of_device_ - used_[device]) {
    return cudaErrorMemoryAllocation;
  }
  void* begin = (is_host ? &host_arena_ : arena_of(device))->take(bytes, kFresh);
  if (begin == nullptr) {
    std::fprintf(stderr, "fake cuda: the system has no %zu bytes\n", bytes);
    return cudaErrorMemoryAllocation;
  }
  if (!is_host) {
    used_[device] += bytes;
  }
  allocations_.add({reinterpret_cast<uintptr_t>(begin), bytes, device, is_host, false});
  version_.fetch_add(1, std::memory_order_release);
  *memory = begin;
  if (!is_host && races_are_checked()) {
    guard_device_memory(begin, bytes);
    catch_touches();
  }
  return cudaSuccess;
}

cudaError_t Memory::release(void* memory, bool is_host) {
  if (memory == nullptr) {
    return cudaSuccess;
  }
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
  if (is_host) {
    forget_pending(memory, find(begin).bytes);
  }
  std::unique_lock lock(mutex_);
  const Allocation allocation = allocations_.remove(begin, is_host, false);
  if (allocation.bytes == 0) {
    std::fprintf(stderr, "fake cuda: %s of %p, which is no allocation: %s\n",
                 is_host ? "cudaFreeHost" : "cudaFree", memory,
                 allocations_.describe(begin).c_str());
    return cudaErrorInvalidValue;
  }
  version_.fetch_add(1, std::memory_order_release);
  ++counts_.releases;
  if (!is_host) {
    used_[allocation.device] -= allocation.bytes;
    forget_device_memory(memory);
  }
  (is_host ? &host_arena_ : arena_of(allocation.device))->give_back(memory, allocation.bytes);
  lock.unlock();  // a race that is being printed asks for allocations
  forget_accesses(memory, allocation.bytes);
  return cudaSuccess;
}

cudaError_t Memory::add_registered(void* memory, size_t bytes, int device) {
  if (memory == nullptr || bytes == 0) {
    return cudaErrorInvalidValue;
  }
  const std::unique_lock lock(mutex_);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
  if (allocations_.overlaps(begin, bytes)) {
    return cudaErrorHostMemoryAlreadyRegistered;
  }
  allocations_.add({begin, bytes, device, true, true});
  version_.fetch_add(1, std::memory_order_release);
  return cudaSuccess;
}

cudaError_t Memory::remove_registered(void* memory) {
  forget_pending(memory, find(reinterpret_cast<uintptr_t>(memory)).bytes);
  std::unique_lock lock(mutex_);
  const Allocation allocation =
      allocations_.remove(reinterpret_cast<uintptr_t>(memory), true, true);
  if (allocation.bytes == 0) {
    return cudaErrorHostMemoryNotRegistered;
  }
  version_.fetch_add(1, std::memory_order_release);
  lock.unlock();
  forget_accesses(memory, allocation.bytes);
  return cudaSuccess;
}

void* Memory::add_variable(size_t bytes) {
  const std::unique_lock lock(mutex_);
  bytes = bytes == 0 ? 1 : bytes;
  void* begin = variable_arena_.take(bytes, 0);
  if (begin == nullptr) {
    throw DeviceFault(cudaErrorMemoryAllocation, "the system has no memory for a variable");
  }
  allocations_.add({reinterpret_cast<uintptr_t>(begin), bytes, -1, false, false});
  ++variables_;
  version_.fetch_add(1, std::memory_order_release);
  return begin;
}

Allocation Memory::find(uintptr_t address) const {
  const std::shared_lock lock(mutex_);
  return allocations_.find(address);
}

bool Memory::is_in_arena(uintptr_t address) const {
  if (host_arena_.contains(address) || variable_arena_.contains(address)) {
    return true;
  }
  for (const std::atomic<Arena*>& arena : arenas_) {
    const Arena* made = arena.load(std::memory_order_acquire);
    if (made != nullptr && made->contains(address)) {
      return true;
    }
  }
  return false;
}

std::string Memory::describe(uintptr_t address) const {
  const std::shared_lock lock(mutex_);
  return allocations_.describe(address);
}

void Memory::free_bytes_of(int device, size_t* free, size_t* total) const {
  const std::shared_lock lock(mutex_);
  *total = bytes_of_device_;
  *free = bytes_of_device_ - used_.at(static_cast<size_t>(device));
}

MemoryCounts Memory::counts() const {
  const std::shared_lock lock(mutex_);
  MemoryCounts counts = counts_;
  counts.live = static_cast<long>(allocations_.size()) - variables_;
  return counts;
}

}  // namespace

cudaError_t allocate_device(void** memory, size_t bytes, int device) {
  return Memory::instance().allocate(memory, bytes, device, false);
}

cudaError_t allocate_host(void** memory, size_t bytes, int device) {
  return Memory::instance().allocate(memory, bytes, device, true);
}

cudaError_t register_host(void* memory, size_t bytes, int device) {
  return Memory::instance().add_registered(memory, bytes, device);
}

cudaError_t release_device(void* memory) {
  return Memory::instance().release(memory, false);
}

cudaError_t release_host(void* memory) {
  return Memory::instance().release(memory, true);
}

cudaError_t unregister_host(void* memory) {
  return Memory::instance().remove_registered(memory);
}

Allocation allocation_of(uintptr_t address) {
  return Memory::instance().find(address);
}

uint64_t memory_version() {
  return Memory::instance().version();
}

bool is_in_arena(uintptr_t address) {
  return Memory::instance().is_in_arena(address);
}

std::string describe_address(uintptr_t address) {
  return Memory::instance().describe(address);
}

void* add_variable(size_t bytes) {
  return Memory::instance().add_variable(bytes);
}

void free_bytes_of(int device, size_t* free, size_t* total) {
  Memory::instance().free_bytes_of(device, free, total);
}

MemoryCounts memory_counts() {
  return Memory::instance().counts();
}

void check_range(const void* memory, size_t bytes, const char* verb) {
  if (bytes == 0) {
    return;
  }
  // A thread mostly stays in one allocation for a while.
  static thread_local Allocation last;
  static thread_local uint64_t version_of_last = 0;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
  const uint64_t version = memory_version();
  if (version != version_of_last || begin - last.begin >= last.bytes) {
    last = allocation_of(begin);
    version_of_last = version;
  }
  if (begin - last.begin < last.bytes && bytes <= last.bytes - (begin - last.begin)) {
    return;
  }
  char text[96];
  std::snprintf(text, sizeof text, "%s %zu bytes at 0x%zx: ", verb, bytes, begin);
  const bool begins_inside = begin - last.begin < last.bytes;
  throw DeviceFault(
      cudaErrorIllegalAddress,
      text + describe_address(begin) + (begins_inside ? "; the access goes beyond its end" : ""));
}

}  // namespace fake_cuda
