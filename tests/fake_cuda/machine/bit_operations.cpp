#include <algorithm>

#include "elementwise.h"
#include "operations.h"

namespace fake_cuda::operations {

void move(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space;
  warp.set(i.to, warp.integer(i.a, space), mask);
}

/// Any function of three bits: the number is its table, by a, b, c.
void logic3(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b, space_c, result;
  const uint32_t *a = warp.integer(i.a, space_a), *b = warp.integer(i.b, space_b),
                 *c = warp.integer(i.c, space_c);
  const auto apply = [&](auto function) {
    for (int lane = 0; lane < kLanes; ++lane) {
      result.v[lane] = function(a[lane], b[lane], c[lane]);
    }
  };
  // The usual ones, then the rest.
  switch (i.number) {
    case 0xc0:
      apply([](uint32_t x, uint32_t y, uint32_t) { return x & y; });
      break;
    case 0xfc:
      apply([](uint32_t x, uint32_t y, uint32_t) { return x | y; });
      break;
    case 0x3c:
      apply([](uint32_t x, uint32_t y, uint32_t) { return x ^ y; });
      break;
    case 0x33:
      apply([](uint32_t, uint32_t y, uint32_t) { return ~y; });
      break;
    case 0xf8:
      apply([](uint32_t x, uint32_t y, uint32_t z) { return x | (y & z); });
      break;
    case 0xfe:
      apply([](uint32_t x, uint32_t y, uint32_t z) { return x | y | z; });
      break;
    case 0x96:
      apply([](uint32_t x, uint32_t y, uint32_t z) { return x ^ y ^ z; });
      break;
    default: {
      uint32_t table[8];
      for (int n = 0; n < 8; ++n) {
        table[n] = i.number >> n & 1 ? ~0u : 0;
      }
      apply([&](uint32_t x, uint32_t y, uint32_t z) {
        return (table[7] & x & y & z) | (table[6] & x & y & ~z) | (table[5] & x & ~y & z) |
               (table[4] & x & ~y & ~z) | (table[3] & ~x & y & z) | (table[2] & ~x & y & ~z) |
               (table[1] & ~x & ~y & z) | (table[0] & ~x & ~y & ~z);
      });
    }
  }
  if (i.to_flag.is_present) {
    const uint32_t not_zero = lanes_where([&](int lane) { return result.v[lane] != 0; });
    warp.write(i.to_flag, not_zero | warp.read(i.p), mask);
  }
  warp.set(i.to, result.v, mask);
}

void predicate_logic3(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t a = warp.read(i.p), b = warp.read(i.q), c = warp.read(i.r);
  const auto apply = [&](uint32_t table) {
    uint32_t value = 0;
    for (int n = 0; n < 8; ++n) {
      if (table >> n & 1) {
        value |= (n & 4 ? a : ~a) & (n & 2 ? b : ~b) & (n & 1 ? c : ~c);
      }
    }
    return value;
  };
  warp.write(i.to_flag, apply(i.number), mask);
  warp.write(i.to_flag2, apply(i.number2), mask);
}

/// Shifts the 64-bit number c:a by b, and takes one half.
void shift(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_b, result;
  if (i.a.negate || i.a.invert || i.c.negate || i.c.invert) {
    cannot_execute(warp, i);
  }
  const uint32_t *a = warp.raw(i.a), *by = warp.integer(i.b, space_b), *c = warp.raw(i.c);
  const bool is_wide = i.mods[Mod::kU64] || i.mods[Mod::kS64];
  const bool is_signed = i.mods[Mod::kS32] || i.mods[Mod::kS64];
  const bool wraps = i.mods[Mod::kW], takes_high = i.mods[Mod::kHI];
  const uint32_t most = is_wide ? 64 : 32;
  const auto amount = [&](int lane) {
    return wraps ? by[lane] & (most - 1) : std::min(by[lane], most);
  };
  const auto apply = [&](auto function) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t value = uint64_t(c[lane]) << 32 | a[lane];
      const uint64_t shifted = function(value, amount(lane));
      result.v[lane] = takes_high ? uint32_t(shifted >> 32) : uint32_t(shifted);
    }
  };
  if (i.mods[Mod::kL]) {
    apply([](uint64_t value, uint32_t n) { return n > 63 ? 0 : value << n; });
  } else if (is_signed) {
    apply([](uint64_t value, uint32_t n) { return uint64_t(int64_t(value) >> std::min(n, 63u)); });
  } else {
    apply([](uint64_t value, uint32_t n) { return n > 63 ? 0 : value >> n; });
  }
  warp.set(i.to, result.v, mask);
}

/// Each byte of the result is one of the 8 bytes of c:a, or copies of its sign.
void permute(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b, space_c;
  const uint32_t *a = warp.integer(i.a, space_a), *selectors = warp.integer(i.b, space_b),
                 *c = warp.integer(i.c, space_c);
  set_each(warp, i, mask, [&](int lane) {
    const uint64_t bytes = uint64_t(c[lane]) << 32 | a[lane];
    uint32_t value = 0;
    for (int n = 0; n < 4; ++n) {
      const unsigned selector = selectors[lane] >> (4 * n) & 15;
      uint32_t byte = uint32_t(bytes >> (8 * (selector & 7))) & 0xff;
      byte = selector & 8 ? (byte >> 7) * 0xff : byte;
      value |= byte << (8 * n);
    }
    return value;
  });
}

void select(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b;
  const uint32_t *a = warp.integer(i.a, space_a), *b = warp.integer(i.b, space_b);
  const uint32_t first = warp.read(i.p);
  set_each(warp, i, mask, [&](int lane) { return first >> lane & 1 ? a[lane] : b[lane]; });
}

/// The place of the highest bit that differs from the sign; with .SH by how much to shift it up.
void leading_one(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space;
  const uint32_t* a = warp.integer(i.a, space);
  const bool is_unsigned = i.mods[Mod::kU32], is_shift = i.mods[Mod::kSH];
  set_each(warp, i, mask, [&](int lane) -> uint32_t {
    const uint32_t value = !is_unsigned && int32_t(a[lane]) < 0 ? ~a[lane] : a[lane];
    if (value == 0) {
      return ~0u;
    }
    const uint32_t zeros = uint32_t(__builtin_clz(value));
    return is_shift ? zeros : 31 - zeros;
  });
}

void population(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space;
  const uint32_t* a = warp.integer(i.a, space);
  set_each(warp, i, mask, [&](int lane) { return uint32_t(__builtin_popcount(a[lane])); });
}

void reverse(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space;
  const uint32_t* a = warp.integer(i.a, space);
  set_each(warp, i, mask, [&](int lane) {
    uint32_t value = __builtin_bswap32(a[lane]);
    value = (value >> 4 & 0x0f0f0f0f) | (value & 0x0f0f0f0f) << 4;
    value = (value >> 2 & 0x33333333) | (value & 0x33333333) << 2;
    return (value >> 1 & 0x55555555) | (value & 0x55555555) << 1;
  });
}

/// b ones, from the bit a on.
void bit_mask(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b;
  const uint32_t *a = warp.integer(i.a, space_a), *b = warp.integer(i.b, space_b);
  const bool wraps = i.mods[Mod::kW];
  set_each(warp, i, mask, [&](int lane) {
    const uint32_t from = wraps ? a[lane] & 31 : std::min(a[lane], 32u);
    const uint32_t many = wraps ? b[lane] & 31 : std::min(b[lane], 32u);
    return uint32_t(((uint64_t(1) << many) - 1) << from);
  });
}

/// The low b bits of a, with their sign or zeros above.
void sign_extend(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b;
  const uint32_t *a = warp.integer(i.a, space_a), *b = warp.integer(i.b, space_b);
  const bool wraps = i.mods[Mod::kW], is_unsigned = i.mods[Mod::kU32];
  set_each(warp, i, mask, [&](int lane) -> uint32_t {
    const uint32_t many = wraps ? b[lane] & 31 : std::min(b[lane], 32u);
    if (many == 0) {
      return 0;
    }
    const uint32_t up = a[lane] << (32 - many);
    return is_unsigned ? up >> (32 - many) : uint32_t(int32_t(up) >> (32 - many));
  });
}

namespace {

int shift_of(Part part) {
  return part >= Part::kByte0 ? 8 * (int(part) - int(Part::kByte0)) : 0;
}

}  // namespace

void register_to_predicates(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* a = warp.raw(i.a);
  const int shift = shift_of(i.a.part);
  for (int n = 0; n < kTrue; ++n) {
    if (i.number >> n & 1) {
      warp.write(n, lanes_where([&](int lane) { return a[lane] >> (n + shift) & 1; }), mask);
    }
  }
}

void predicates_to_register(Warp& warp, const Instruction& i, uint32_t mask) {
  if (i.a.part != Part::kAll) {
    cannot_execute(warp, i);
  }
  const uint32_t* a = warp.raw(i.a);
  set_each(warp, i, mask, [&](int lane) {
    uint32_t value = 0;
    for (int n = 0; n < kTrue; ++n) {
      value |= (warp.predicate(n) >> lane & 1) << n;
    }
    return (value & i.number) | (a[lane] & ~i.number);
  });
}

}  // namespace fake_cuda::operations
