// Takes the place of malloc in this program, as its libraries call it, and counts.
#include "allocation_counter.h"

#include <errno.h>
#include <malloc.h>

#include <atomic>
#include <cstdint>

namespace {

std::atomic<int64_t> in_use{0};
std::atomic<int64_t> most{0};

void* counted(void* memory) {
  const int64_t now = in_use += static_cast<int64_t>(malloc_usable_size(memory));
  for (int64_t before = most; before < now && !most.compare_exchange_weak(before, now);) {
  }
  return memory;
}

void give_back(void* memory) {
  in_use -= static_cast<int64_t>(malloc_usable_size(memory));
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);

void* malloc(size_t size) {
  return counted(__libc_malloc(size));
}
void* calloc(size_t count, size_t size) {
  return counted(__libc_calloc(count, size));
}
void* realloc(void* memory, size_t size) {
  give_back(memory);
  return counted(__libc_realloc(memory, size));
}
void* memalign(size_t alignment, size_t size) {
  return counted(__libc_memalign(alignment, size));
}
void* aligned_alloc(size_t alignment, size_t size) {
  return counted(__libc_memalign(alignment, size));
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = counted(__libc_memalign(alignment, size));
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  give_back(memory);
  __libc_free(memory);
}
}

namespace lockstep::testing {

size_t most_allocated_by(const std::function<void()>& body) {
  const int64_t before = in_use;
  most = before;
  body();
  return static_cast<size_t>(most - before);
}

}  // namespace lockstep::testing
