#include "arena.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace fake_cuda {
namespace {

constexpr size_t kPage = 4096;
// What CUDA promises. Pieces lie against the guard page behind them as closely as this permits.
constexpr size_t kAlignment = 256;
// Addresses cost nothing; a process with a limit on them gets less.
constexpr size_t kMostBytes = size_t{1} << 40;
constexpr size_t kFewestBytes = size_t{1} << 32;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Arena::Arena() {
  for (size_t bytes = kMostBytes; bytes >= kFewestBytes; bytes /= 2) {
    void* range =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) {
      begin_ = reinterpret_cast<uintptr_t>(range);
      end_ = begin_ + bytes;
      next_ = begin_ + kPage;
      return;
    }
  }
  throw std::bad_alloc();
}

void* Arena::take(size_t bytes, unsigned char fill) {
  if (bytes > end_ - next_) {
    return nullptr;
  }
  const size_t used = round_up(bytes, kAlignment);
  const size_t pages = round_up(used, kPage);
  if (pages + kPage > end_ - next_) {
    return nullptr;
  }
  void* first_page = reinterpret_cast<void*>(next_);
  if (mprotect(first_page, pages, PROT_READ | PROT_WRITE) != 0) {
    return nullptr;
  }
  std::memset(first_page, fill, pages);
  const uintptr_t begin = next_ + pages - used;
  next_ += pages + kPage;
  return reinterpret_cast<void*>(begin);
}

void Arena::give_back(void* memory, size_t bytes) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t end = begin + round_up(bytes, kAlignment);
  const uintptr_t first_page = begin / kPage * kPage;
  void* pages = reinterpret_cast<void*>(first_page);
  madvise(pages, end - first_page, MADV_DONTNEED);
  mprotect(pages, end - first_page, PROT_NONE);
}

}  // namespace fake_cuda
