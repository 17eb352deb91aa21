#pragma once

#include <array>
#include <cstdint>

namespace lockstep::benchmarks {

/// What all programs that time all-reduces send, and how often.
struct Size {
  const char* name;
  int64_t bytes;
  int calls;
};
inline constexpr std::array<Size, 4> sizes = {{{"4KB", 4 << 10, 1000},
                                               {"64KB", 64 << 10, 500},
                                               {"1MB", 1 << 20, 100},
                                               {"32MB", 32 << 20, 15}}};
inline constexpr int warm_up_calls = 3;

}  // namespace lockstep::benchmarks
