#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "memory.h"

namespace fake_cuda {

/// Which allocations there are, and which there were. Not thread-safe.
class Allocations {
 public:
  void add(const Allocation& allocation);
  /// Removes the allocation that begins there and is of this kind; bytes = 0 if there is none.
  Allocation remove(uintptr_t begin, bool is_host, bool is_registered);
  /// The allocation that contains the address, or bytes = 0.
  Allocation find(uintptr_t address) const;
  bool overlaps(uintptr_t begin, size_t bytes) const;
  /// The allocation around the address, or what is next to it, in words.
  std::string describe(uintptr_t address) const;
  size_t size() const { return live_.size(); }

 private:
  struct Freed {
    Allocation allocation;
    long change = 0;  // changes_ after the release
    double at = 0;    // seconds
  };

  const Freed* find_freed(uintptr_t address) const;

  std::map<uintptr_t, Allocation> live_;  // by first address
  std::map<uintptr_t, Freed> freed_;      // the newest ones, since addresses only grow
  long changes_ = 0;
};

}  // namespace fake_cuda
