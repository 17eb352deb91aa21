#pragma once

#include <cstdint>

namespace fake_cuda {

constexpr int kLanes = 32;
constexpr uint32_t kAllLanes = ~0u;

/// One 32-bit register of all lanes. Plain loops over it become vector instructions of the host.
struct Lanes {
  alignas(32) uint32_t v[kLanes];
};

struct WideLanes {
  alignas(32) uint64_t v[kLanes];
};

/// Calls visit(lane) for each lane of the mask.
template <typename Visit>
inline void each_lane(uint32_t mask, Visit visit) {
  for (; mask != 0; mask &= mask - 1) {
    visit(__builtin_ctz(mask));
  }
}

/// The lanes where test(lane) holds.
template <typename Test>
inline uint32_t lanes_where(Test test) {
  uint32_t found = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    found |= uint32_t(bool(test(lane))) << lane;
  }
  return found;
}

}  // namespace fake_cuda
