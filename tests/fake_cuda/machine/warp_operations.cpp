#include "elementwise.h"
#include "operations.h"

namespace fake_cuda::operations {

void read_special(Warp& warp, const Instruction& i, uint32_t mask) {
  const dim3 size = warp.block().size(), at = warp.block().position();
  const uint32_t clock = i.special == Special::kClock ? uint32_t(warp.block().instructions()) : 0;
  const auto value_of = [&](uint32_t lane) -> uint32_t {
    const uint32_t thread = uint32_t(warp.first_thread()) + lane;
    switch (i.special) {
      case Special::kZero:
        return 0;
      case Special::kThreadX:
        return thread % size.x;
      case Special::kThreadY:
        return thread / size.x % size.y;
      case Special::kThreadZ:
        return thread / size.x / size.y;
      case Special::kBlockX:
        return at.x;
      case Special::kBlockY:
        return at.y;
      case Special::kBlockZ:
        return at.z;
      case Special::kLane:
        return lane;
      case Special::kEqualMask:
        return 1u << lane;
      case Special::kLessMask:
        return (1u << lane) - 1;
      case Special::kLessEqualMask:
        return (2u << lane) - 1;
      case Special::kGreaterMask:
        return ~((2u << lane) - 1);
      case Special::kGreaterEqualMask:
        return ~((1u << lane) - 1);
      case Special::kClock:
        return clock;
    }
    return 0;
  };
  const bool is_same = i.special == Special::kZero || i.special == Special::kClock ||
                       (i.special >= Special::kBlockX && i.special <= Special::kBlockZ);
  if (i.to.index >= kFirstUniform && i.to.index < kFirstGeneral) {  // S2UR
    if (!is_same) {
      cannot_execute(warp, i);
    }
    warp.set_all(i.to, value_of(0));
    return;
  }
  Lanes result;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    result.v[lane] = value_of(lane);
  }
  warp.set(i.to, result.v, mask);
}

/// CS2R: two words, of which only the low one may be other than zero.
void read_special_wide(Warp& warp, const Instruction& i, uint32_t mask) {
  if (i.special != Special::kZero && i.special != Special::kClock) {
    cannot_execute(warp, i);
  }
  read_special(warp, i, mask);
  if (!i.mods[Mod::kB32]) {
    warp.set(i.to, Lanes{}.v, mask, 1);
  }
}

void to_uniform(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space;
  warp.set_all(i.to, warp.integer(i.a, space)[__builtin_ctz(mask)]);
}

void vote(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t ballot = warp.read(i.p) & mask;
  const bool yes = i.mods[Mod::kALL]  ? ballot == mask
                   : i.mods[Mod::kEQ] ? ballot == mask || ballot == 0
                                      : ballot != 0;
  if (!i.mods[Mod::kALL] && !i.mods[Mod::kEQ] && !i.mods[Mod::kANY]) {
    cannot_execute(warp, i);
  }
  if (i.to.is_present) {
    const bool is_uniform = i.to.index < kFirstGeneral;
    Lanes all;
    for (uint32_t& lane : all.v) {
      lane = ballot;
    }
    warp.set(i.to, all.v, is_uniform ? kAllLanes : mask);
  }
  warp.write(i.to_flag, yes ? kAllLanes : 0, mask);
}

/// The threads that have the same value; with .ALL all of them, or none.
void match(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t *low = warp.raw(i.a), *high = warp.raw(i.a, i.mods[Mod::kU64] ? 1 : 0);
  Lanes same = {};
  each_lane(mask, [&](int lane) {
    same.v[lane] = mask & lanes_where([&](int other) {
                     return low[other] == low[lane] && high[other] == high[lane];
                   });
  });
  if (i.mods[Mod::kALL]) {
    const bool all = same.v[__builtin_ctz(mask)] == mask;
    for (uint32_t& lane : same.v) {
      lane = all ? mask : 0;
    }
    warp.write(i.to_flag, all ? kAllLanes : 0, mask);
  }
  warp.set(i.to, same.v, mask);
}

void reduce(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space;
  const uint32_t* a = warp.integer(i.a, space);
  const Mods& m = i.mods;
  const auto join = [&](uint32_t x, uint32_t y) {
    if (m[Mod::kOR]) {
      return x | y;
    }
    if (m[Mod::kXOR]) {
      return x ^ y;
    }
    if (m[Mod::kSUM]) {
      return x + y;
    }
    if (m[Mod::kMIN] || m[Mod::kMAX]) {
      const bool less = m[Mod::kS32] ? int32_t(x) < int32_t(y) : x < y;
      return less == m[Mod::kMIN] ? x : y;
    }
    return x & y;  // without a name: AND
  };
  uint32_t all = a[__builtin_ctz(mask)];
  each_lane(mask & (mask - 1), [&](int lane) { all = join(all, a[lane]); });
  if (i.to.index < kFirstGeneral) {
    warp.set_all(i.to, all);
  } else {
    set_each(warp, i, mask, [&](int) { return all; });
  }
}

void shuffle(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t *a = warp.raw(i.a), *b = warp.raw(i.b), *c = warp.raw(i.c);
  const Mods& m = i.mods;
  if (!m[Mod::kUP] && !m[Mod::kDOWN] && !m[Mod::kBFLY] && !m[Mod::kIDX]) {
    cannot_execute(warp, i);
  }
  uint32_t inside = 0;
  Lanes result;
  for (int lane = 0; lane < kLanes; ++lane) {
    // c: which bits of the lane's number say its segment, and the last lane (up: the first).
    const int segment = int(c[lane] >> 8 & 31), clamp = int(c[lane] & 31);
    const int bound = (lane & segment) | (clamp & ~segment), by = int(b[lane] & 31);
    int from = 0;
    if (m[Mod::kUP]) {
      from = lane - by;
    } else if (m[Mod::kDOWN]) {
      from = lane + by;
    } else if (m[Mod::kBFLY]) {
      from = lane ^ by;
    } else {
      from = (lane & segment) | (by & ~segment);
    }
    const bool is_inside = m[Mod::kUP] ? from >= bound : from <= bound;
    result.v[lane] = a[is_inside ? from : lane];
    inside |= uint32_t(is_inside) << lane;
  }
  warp.write(i.to_flag, inside, mask);
  warp.set(i.to, result.v, mask);
}

}  // namespace fake_cuda::operations
