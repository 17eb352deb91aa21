#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace lockstep::testing {

/// Memory that begins at a multiple of 16 bytes, as arrays of an arena do, and ends less than 16
/// bytes before a page that nothing may touch. A write to the bytes between fails the test.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes)
      : bytes_(bytes), whole_((bytes + kAlignment - 1) / kAlignment * kAlignment) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t usable = (whole_ + page - 1) / page * page;
    mapped_ = usable + page;
    memory_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) {
      throw std::bad_alloc();
    }
    std::byte* const end = static_cast<std::byte*>(memory_) + usable;
    mprotect(end, page, PROT_NONE);
    data_ = end - whole_;
    std::memset(data_, kUnwritten, whole_);
  }
  ~GuardedMemory() {
    const auto unwritten = [](std::byte each) { return each == std::byte{kUnwritten}; };
    EXPECT_TRUE(std::all_of(data_ + bytes_, data_ + whole_, unwritten))
        << "something was written behind an array of " << bytes_ << " bytes";
    munmap(memory_, mapped_);
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  void* data() const { return data_; }

 private:
  static constexpr size_t kAlignment = 16;
  static constexpr unsigned char kUnwritten = 0xff;  // NaN
  size_t bytes_;
  size_t whole_;
  size_t mapped_;
  void* memory_;
  std::byte* data_;
};

}  // namespace lockstep::testing
