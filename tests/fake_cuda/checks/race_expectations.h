#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "../memory/memory.h"
#include "../memory/races.h"
#include "expect.h"

/// What the checks of memory/ about races share. Streams are played by clocks.
namespace fake_cuda::checks {

constexpr size_t kMib = 1 << 20;

/// A lane of work: each access is a piece of its own, ordered after the earlier ones.
class Stream {
 public:
  explicit Stream(const std::string& name) : lane_(new_lane(name)) {}
  void read(const char* what, const void* memory, size_t bytes) { use(what, memory, bytes, false); }
  void write(const char* what, const void* memory, size_t bytes) { use(what, memory, bytes, true); }
  /// What an event that is recorded now orders.
  Clock event() const { return clock_; }
  void wait(const Clock& event) { clock_.join(event); }
  uint32_t lane() const { return lane_; }

 private:
  void use(const char* what, const void* memory, size_t bytes, bool writes) {
    const Clock before = clock_;
    const Actor actor = {lane_, ++number_, &before, what};
    check_access(actor, memory, bytes, writes);
    clock_.set(lane_, number_);
  }

  uint32_t lane_;
  uint64_t number_ = 0;
  Clock clock_;
};

inline char* device_memory(size_t bytes) {
  void* memory = nullptr;
  if (allocate_device(&memory, bytes, 0) != cudaSuccess) {
    std::abort();
  }
  return static_cast<char*>(memory);
}

inline char* host_memory(size_t bytes) {
  void* memory = nullptr;
  if (allocate_host(&memory, bytes, 0) != cudaSuccess) {
    std::abort();
  }
  return static_cast<char*>(memory);
}

template <typename Function>
void expect_none(const std::string& what, Function function) {
  const long before = races_found();
  const std::string printed = printed_by(function);
  expect(races_found() == before && printed.empty(), what + ": no race " + printed);
}

/// One race, whose message has all the parts.
template <typename Function>
void expect_race(const std::string& what, const std::vector<std::string>& parts,
                 Function function) {
  const long before = races_found();
  const std::string printed = printed_by(function);
  expect(races_found() == before + 1, what + ": one race");
  for (const std::string& part : parts) {
    expect(has(printed, part), "  with \"" + part + "\" in: " + printed);
  }
}

}  // namespace fake_cuda::checks
