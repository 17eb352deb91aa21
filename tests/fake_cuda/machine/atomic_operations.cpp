#include <algorithm>
#include <cstring>

#include "addresses.h"
#include "elementwise.h"
#include "half.h"
#include "operations.h"

namespace fake_cuda::operations {
namespace {

/// Two 16-bit sums.
uint32_t sum_of_halves(uint32_t a, uint32_t b) {
  const auto add = [](uint32_t x, uint32_t y) -> uint32_t {
    const float sum = half_to_float(x) + half_to_float(y);
    return sum == sum ? float_to_half(sum) : kHalfNan;
  };
  return add(a & 0xffff, b & 0xffff) | add(a >> 16, b >> 16) << 16;
}

uint32_t sum_of_floats(uint32_t a, uint32_t b, bool flushes) {
  const float x = as_float(flushes ? flushed(a) : a), y = as_float(flushes ? flushed(b) : b);
  const float sum = x + y;
  return sum != sum ? kNan : flushes ? flushed(bits_of(sum)) : bits_of(sum);
}

/// What stays in memory. `value` and `second` are the sources; 32-bit numbers have no high word.
uint64_t updated(Warp& warp, const Instruction& i, uint64_t old, uint64_t value, uint64_t second) {
  const Mods& m = i.mods;
  if (m[Mod::kCAS] || m[Mod::kCAST]) {
    return old == value ? second : old;
  }
  if (m[Mod::kEXCH]) {
    return value;
  }
  if (m[Mod::kADD]) {
    if (m[Mod::kF16x2]) {
      return sum_of_halves(uint32_t(old), uint32_t(value));
    }
    if (m[Mod::kF32]) {
      return sum_of_floats(uint32_t(old), uint32_t(value), m[Mod::kFTZ]);
    }
    if (m[Mod::kF64]) {
      return bits_of(as_double(old) + as_double(value));
    }
    return old + value;
  }
  if (m[Mod::kMIN] || m[Mod::kMAX]) {
    const bool less = m[Mod::kS32]   ? int32_t(old) < int32_t(value)
                      : m[Mod::kS64] ? int64_t(old) < int64_t(value)
                                     : old < value;
    return less == m[Mod::kMIN] ? old : value;
  }
  if (m[Mod::kPOPC]) {  // counts the threads
    return old + 1;
  }
  if (m[Mod::kINC]) {
    return old >= value ? 0 : old + 1;
  }
  if (m[Mod::kDEC]) {
    return old == 0 || old > value ? value : old - 1;
  }
  if (m[Mod::kAND]) {
    return old & value;
  }
  if (m[Mod::kOR]) {
    return old | value;
  }
  if (m[Mod::kXOR]) {
    return old ^ value;
  }
  cannot_execute(warp, i);
}

/// The threads of the mask go one after the other.
void update(Warp& warp, const Instruction& i, uint32_t mask, char** places) {
  if (i.a.negate || i.a.invert || i.b.negate || i.b.invert) {
    cannot_execute(warp, i);
  }
  const bool is_wide = i.bytes == 8;
  const auto value_of = [&](const Operand& o, int lane) {
    const uint64_t high = is_wide ? warp.raw(o, 1)[lane] : 0;
    return high << 32 | warp.raw(o)[lane];
  };
  WideLanes before;
  each_lane(mask, [&](int lane) {
    uint64_t old = 0;
    memcpy(&old, places[lane], size_t(i.bytes));
    const uint64_t now = updated(warp, i, old, value_of(i.a, lane), value_of(i.b, lane));
    memcpy(places[lane], &now, size_t(i.bytes));
    // .CAST answers whether it has written, not what was there.
    before.v[lane] = i.mods[Mod::kCAST] ? old == value_of(i.a, lane) : old;
  });
  if (i.to.is_present) {
    Lanes low;
    for (int lane = 0; lane < kLanes; ++lane) {
      low.v[lane] = uint32_t(before.v[lane]);
    }
    if (is_wide) {
      warp.set_wide(i.to, before.v, mask);
    } else {
      warp.set(i.to, low.v, mask);
    }
  }
  if (i.to_flag.is_present) {  // "done": some sums are refused in shared memory, not here
    warp.write(i.to_flag, kAllLanes, mask);
  }
}

}  // namespace

void atomic(Warp& warp, const Instruction& i, uint32_t mask) {
  alignas(32) uint64_t addresses[kLanes];
  char* places[kLanes];
  addresses_of(warp, i.address, i.mods[Mod::kE], addresses);
  warp.block().memory().places_of(warp, i, addresses, mask, true, places);
  update(warp, i, mask, places);
}

void atomic_shared(Warp& warp, const Instruction& i, uint32_t mask) {
  if (i.mods[Mod::kPOPC] && i.to.index != kZero) {
    cannot_execute(warp, i);
  }
  alignas(32) uint64_t addresses[kLanes];
  char* places[kLanes];
  addresses_of(warp, i.address, false, addresses);
  warp.block().memory().shared_places_of(warp, i, addresses, mask, true, places);
  update(warp, i, mask, places);
}

}  // namespace fake_cuda::operations
