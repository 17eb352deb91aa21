#include "allocations.h"

#include <chrono>
#include <cstdio>
#include <iterator>

namespace fake_cuda {
namespace {

// A program without LibTorch's caching allocator frees a million times; old ones are forgotten.
constexpr size_t kMostFreed = 100000;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string hexadecimal(uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%zx", static_cast<size_t>(address));
  return text;
}

std::string name_of(const Allocation& allocation) {
  std::string name =
      std::to_string(allocation.bytes) + " bytes at " + hexadecimal(allocation.begin);
  if (allocation.is_registered) {
    return name + " (registered host memory)";
  }
  if (allocation.is_host) {
    return name + " (page-locked host memory)";
  }
  if (allocation.device < 0) {
    return name + " (a variable of a kernel)";
  }
  return name + " (device " + std::to_string(allocation.device) + ")";
}

bool contains(const Allocation& allocation, uintptr_t address) {
  return address - allocation.begin < allocation.bytes;
}

}  // namespace

void Allocations::add(const Allocation& allocation) {
  ++changes_;
  live_[allocation.begin] = allocation;
}

Allocation Allocations::remove(uintptr_t begin, bool is_host, bool is_registered) {
  const auto found = live_.find(begin);
  if (found == live_.end()) {
    return {};
  }
  const Allocation allocation = found->second;
  const bool is_variable = !allocation.is_host && allocation.device < 0;
  if (allocation.is_host != is_host || allocation.is_registered != is_registered || is_variable) {
    return {};
  }
  live_.erase(found);
  ++changes_;
  if (!is_registered) {
    freed_[begin] = {allocation, changes_, now()};
    if (freed_.size() > kMostFreed) {
      freed_.erase(freed_.begin());
    }
  }
  return allocation;
}

Allocation Allocations::find(uintptr_t address) const {
  auto after = live_.upper_bound(address);
  if (after == live_.begin()) {
    return {};
  }
  const Allocation& before = std::prev(after)->second;
  return contains(before, address) ? before : Allocation{};
}

bool Allocations::overlaps(uintptr_t begin, size_t bytes) const {
  const auto after = live_.lower_bound(begin);
  return find(begin).bytes != 0 || (after != live_.end() && after->first - begin < bytes);
}

const Allocations::Freed* Allocations::find_freed(uintptr_t address) const {
  const auto after = freed_.upper_bound(address);
  if (after == freed_.begin()) {
    return nullptr;
  }
  const Freed& before = std::prev(after)->second;
  return contains(before.allocation, address) ? &before : nullptr;
}

std::string Allocations::describe(uintptr_t address) const {
  if (address < 65536) {
    return "near the null pointer";
  }
  const Allocation around = find(address);
  if (around.bytes != 0) {
    return "byte " + std::to_string(address - around.begin) + " of " + name_of(around);
  }
  if (const Freed* freed = find_freed(address)) {
    char age[64];
    std::snprintf(age, sizeof age, "%.1f ms and %ld allocations and releases ago",
                  (now() - freed->at) * 1e3, changes_ - freed->change);
    return "byte " + std::to_string(address - freed->allocation.begin) + " of " +
           name_of(freed->allocation) + ", which was freed " + age;
  }
  const auto after = live_.upper_bound(address);
  const Allocation* nearest = nullptr;
  if (after != live_.begin()) {
    nearest = &std::prev(after)->second;
  }
  if (after != live_.end() &&
      (nearest == nullptr ||
       after->first - address < address - (nearest->begin + nearest->bytes))) {
    nearest = &after->second;
  }
  if (nearest == nullptr) {
    return "there are no allocations";
  }
  const bool is_before = address < nearest->begin;
  const size_t distance =
      is_before ? nearest->begin - address : address - (nearest->begin + nearest->bytes);
  return std::to_string(distance) + (is_before ? " bytes before the first of " : " bytes behind ") +
         name_of(*nearest) + ", the nearest allocation";
}

}  // namespace fake_cuda
