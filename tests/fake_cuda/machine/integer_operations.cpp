#include <algorithm>

#include "elementwise.h"
#include "operations.h"

namespace fake_cuda::operations {
namespace {

/// A source of an addition as a 33-bit number: that of -b is the inverse of b plus one, whose carry
/// counts.
inline uint64_t term(const Operand& o, uint32_t value) {
  return o.negate ? (uint64_t(1) << 32) - value : o.invert ? uint32_t(~value) : value;
}

bool is_plain(const Operand& o) {
  return !o.negate && !o.invert;
}

/// a * b + c with 64 bits, or their high half.
void wide_multiply_add(Warp& warp, const Instruction& i, uint32_t mask) {
  if (!is_plain(i.a) || !is_plain(i.b)) {
    cannot_execute(warp, i);
  }
  const uint32_t *a = warp.raw(i.a), *b = warp.raw(i.b);
  const uint32_t *low = warp.raw(i.c), *high = warp.raw(i.c, 1);
  const uint32_t carry = i.mods[Mod::kX] ? warp.read(i.p) : 0;
  const bool is_unsigned = i.mods[Mod::kU32];
  WideLanes sum;
  uint32_t carried = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t product = is_unsigned
                                 ? uint64_t(a[lane]) * b[lane]
                                 : uint64_t(int64_t(int32_t(a[lane])) * int64_t(int32_t(b[lane])));
    uint64_t addend = uint64_t(high[lane]) << 32 | low[lane];
    addend = i.c.invert ? ~addend : i.c.negate ? -addend : addend;
    const unsigned __int128 all = (unsigned __int128)product + addend + (carry >> lane & 1);
    sum.v[lane] = uint64_t(all);
    carried |= uint32_t(all >> 64 & 1) << lane;
  }
  if (i.mods[Mod::kWIDE]) {
    warp.set_wide(i.to, sum.v, mask);
  } else {
    set_each(warp, i, mask, [&](int lane) { return uint32_t(sum.v[lane] >> 32); });
  }
  if (i.to_flag.is_present) {
    warp.write(i.to_flag, carried, mask);
  }
}

}  // namespace

void multiply_add(Warp& warp, const Instruction& i, uint32_t mask) {
  if (i.mods[Mod::kWIDE] || i.mods[Mod::kHI]) {
    wide_multiply_add(warp, i, mask);
    return;
  }
  if (i.to_flag.is_present && i.to_flag.index != kTrue) {
    cannot_execute(warp, i);
  }
  Lanes space_a, space_b, space_c;
  const uint32_t* c = warp.integer(i.c, space_c);
  if (i.mods[Mod::kMOV]) {
    warp.set(i.to, c, mask);
    return;
  }
  const uint32_t *a = warp.integer(i.a, space_a), *b = warp.integer(i.b, space_b);
  const uint32_t carry = i.mods[Mod::kX] ? warp.read(i.p) : 0;
  set_each(warp, i, mask,
           [&](int lane) { return a[lane] * b[lane] + c[lane] + (carry >> lane & 1); });
}

void add3(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t *a = warp.raw(i.a), *b = warp.raw(i.b), *c = warp.raw(i.c);
  const bool has_carries = i.to_flag.is_present || i.mods[Mod::kX];
  if (!has_carries) {
    Lanes space_a, space_b, space_c;
    a = warp.integer(i.a, space_a);
    b = warp.integer(i.b, space_b);
    c = warp.integer(i.c, space_c);
    set_each(warp, i, mask, [&](int lane) { return a[lane] + b[lane] + c[lane]; });
    return;
  }
  uint32_t carry = 0, carry2 = 0;
  if (i.mods[Mod::kX]) {
    carry = i.p.is_present ? warp.read(i.p) : 0;
    carry2 = i.q.is_present ? warp.read(i.q) : 0;
  }
  Lanes result;
  uint32_t carried = 0, carried2 = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t sum = term(i.a, a[lane]) + term(i.b, b[lane]) + term(i.c, c[lane]) +
                         (carry >> lane & 1) + (carry2 >> lane & 1);
    result.v[lane] = uint32_t(sum);
    carried |= uint32_t(sum >> 32 >= 1) << lane;
    carried2 |= uint32_t(sum >> 32 >= 2) << lane;
  }
  warp.set(i.to, result.v, mask);
  if (i.to_flag.is_present) {
    warp.write(i.to_flag, carried, mask);
  }
  if (i.to_flag2.is_present) {
    warp.write(i.to_flag2, carried2, mask);
  }
}

void add2(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b;
  const uint32_t *a = warp.integer(i.a, space_a), *b = warp.integer(i.b, space_b);
  set_each(warp, i, mask, [&](int lane) { return a[lane] + b[lane]; });
}

/// (a << shift) + b, or b - (a << shift) with the carry of that; with .HI the high half of (c:a <<
/// shift), plus b.
void shifted_add(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space;
  const bool is_high = i.mods[Mod::kHI], extends_sign = i.mods[Mod::kSX32];
  if (i.c.is_present != (is_high && !extends_sign) || i.a.invert || i.c.negate || i.c.invert ||
      (is_high && i.a.negate)) {
    cannot_execute(warp, i);
  }
  const uint32_t *a = warp.raw(i.a), *b = warp.raw(i.b), *c = warp.raw(i.c);
  const uint32_t carry = i.mods[Mod::kX] ? warp.read(i.p) : 0;
  const unsigned shift = i.number & 31;
  uint32_t carried = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    uint64_t value = extends_sign     ? uint64_t(int64_t(int32_t(a[lane])))
                     : i.c.is_present ? uint64_t(c[lane]) << 32 | a[lane]
                                      : a[lane];
    value <<= shift;
    const uint64_t sum = term(i.a, uint32_t(is_high ? value >> 32 : value)) + term(i.b, b[lane]) +
                         (carry >> lane & 1);
    space.v[lane] = uint32_t(sum);
    carried |= uint32_t(sum >> 32 & 1) << lane;
  }
  warp.set(i.to, space.v, mask);
  if (i.to_flag.is_present) {
    warp.write(i.to_flag, carried, mask);
  }
}

void minmax(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b;
  const uint32_t *a = warp.integer(i.a, space_a), *b = warp.integer(i.b, space_b);
  const uint32_t min = warp.read(i.p);
  // Flipping the sign makes the order of signed numbers that of unsigned ones.
  const uint32_t flip = i.mods[Mod::kU32] ? 0 : kSign;
  set_each(warp, i, mask, [&](int lane) {
    const bool less = (a[lane] ^ flip) < (b[lane] ^ flip);
    return less == bool(min >> lane & 1) ? a[lane] : b[lane];
  });
}

void absolute(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space;
  const uint32_t* a = warp.integer(i.a, space);
  set_each(warp, i, mask, [&](int lane) { return int32_t(a[lane]) < 0 ? -a[lane] : a[lane]; });
}

void compare(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b;
  const uint32_t *a = warp.integer(i.a, space_a), *b = warp.integer(i.b, space_b);
  uint32_t value = i.mods[Mod::kU32]
                       ? lanes_that_compare(warp, i, a, b)
                       : lanes_that_compare(warp, i, reinterpret_cast<const int32_t*>(a),
                                            reinterpret_cast<const int32_t*>(b));
  if (i.mods[Mod::kEX]) {
    // The high words of two 64-bit numbers; q is what their low words gave.
    if (!i.q.is_present) {
      cannot_execute(warp, i);
    }
    const uint32_t equal = lanes_where([&](int lane) { return a[lane] == b[lane]; });
    const uint32_t low = warp.read(i.q);
    value = i.mods[Mod::kNE] ? value | low : (value & ~equal) | (equal & low);
  }
  write_comparison(warp, i, value, mask);
}

/// c plus the sum of the products of 4 pairs of bytes.
void dot_product(Warp& warp, const Instruction& i, uint32_t mask) {
  if (!i.mods[Mod::k4A]) {
    cannot_execute(warp, i);
  }
  const uint32_t *a = warp.raw(i.a), *b = warp.raw(i.b);
  Lanes space;
  const uint32_t* c = warp.integer(i.c, space);
  const auto byte = [](Type type, uint32_t value, int n) {
    return type == Type::kS8 ? int32_t(int8_t(value >> 8 * n)) : int32_t(uint8_t(value >> 8 * n));
  };
  set_each(warp, i, mask, [&](int lane) {
    uint32_t sum = c[lane];
    for (int n = 0; n < 4; ++n) {
      sum += uint32_t(byte(i.to_type, a[lane], n) * byte(i.from_type, b[lane], n));
    }
    return sum;
  });
}

}  // namespace fake_cuda::operations
