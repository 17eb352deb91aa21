#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "elementwise.h"
#include "half.h"
#include "operations.h"

namespace fake_cuda::operations {
namespace {

/// Which of the two types that the name holds is the float one, and which is not.
Type float_type(const Instruction& i) {
  return is_float(i.to_type) ? i.to_type : is_float(i.from_type) ? i.from_type : Type::kF32;
}

Type integer_type(const Instruction& i) {
  const auto is_integer = [](Type type) { return type != Type::kNone && !is_float(type); };
  return is_integer(i.to_type) ? i.to_type : is_integer(i.from_type) ? i.from_type : Type::kS32;
}

bool is_wide(Type type) {
  return type == Type::kF64 || type == Type::kU64 || type == Type::kS64;
}

struct Doubles {
  alignas(32) double v[kLanes];
};

/// A source of the type as doubles, which hold each of them exactly.
Doubles float_source_of(Warp& warp, const Instruction& i, Type type) {
  const Operand& o = i.a;
  const uint32_t *low = warp.raw(o), *high = warp.raw(o, 1);
  if (o.part != Part::kAll && type != Type::kF16 && type != Type::kBF16) {
    cannot_execute(warp, i);
  }
  Doubles values;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t half = o.part == Part::kHighHalf ? low[lane] >> 16 : low[lane] & 0xffff;
    switch (type) {
      case Type::kF64:
        values.v[lane] = as_double(uint64_t(high[lane]) << 32 | low[lane]);
        break;
      case Type::kF16:
        values.v[lane] = half_to_float(half);
        break;
      case Type::kBF16:
        values.v[lane] = bfloat_to_float(half);
        break;
      default:
        values.v[lane] = i.mods[Mod::kFTZ] ? flushed(as_float(low[lane])) : as_float(low[lane]);
    }
    if (o.absolute) {
      values.v[lane] = std::fabs(values.v[lane]);
    }
    if (o.negate) {
      values.v[lane] = -values.v[lane];
    }
  }
  return values;
}

HalfRounding half_rounding(const Mods& mods) {
  return mods[Mod::kRM]   ? HalfRounding::kDown
         : mods[Mod::kRP] ? HalfRounding::kUp
         : mods[Mod::kRZ] ? HalfRounding::kZero
                          : HalfRounding::kNear;
}

double rounded(double value, const Mods& mods) {
  return mods[Mod::kTRUNC]   ? std::trunc(value)
         : mods[Mod::kFLOOR] ? std::floor(value)
         : mods[Mod::kCEIL]  ? std::ceil(value)
                             : std::nearbyint(value);
}

/// Writes floats of the type, rounded as the instruction says.
void write_floats(Warp& warp, const Instruction& i, uint32_t mask, Type type,
                  const Doubles& values) {
  switch (type) {
    case Type::kF64:
      warp.set_wide(i.to, reinterpret_cast<const uint64_t*>(values.v), mask);
      return;
    case Type::kF16: {
      const HalfRounding rounding = half_rounding(i.mods);
      set_each(warp, i, mask, [&](int lane) {
        const double value = values.v[lane];
        return value == value ? float_to_half(odd_float(value), rounding) : kHalfNan;
      });
      return;
    }
    case Type::kF32: {
      const Rounding rounding(i.mods);
      set_each(warp, i, mask, [&](int lane) {
        const float value = float(values.v[lane]);
        const uint32_t bits = value == value ? bits_of(value) : kNan;
        return i.mods[Mod::kFTZ] ? flushed(bits) : bits;
      });
      return;
    }
    default:
      cannot_execute(warp, i);
  }
}

/// A number as an integer of the type; what does not fit becomes the nearest that does.
template <typename T>
uint64_t clamped(double value, bool from_double) {
  if (value != value) {
    return from_double || sizeof(T) == 8 ? uint64_t(1) << (8 * sizeof(T) - 1) : 0;
  }
  // 2 to the power of the bits: exact, unlike the greatest 64-bit number.
  const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (value <= double(std::numeric_limits<T>::min())) {
    return uint64_t(int64_t(std::numeric_limits<T>::min()));
  }
  if (value >= end) {
    return uint64_t(std::numeric_limits<T>::max());
  }
  return uint64_t(T(value));
}

}  // namespace

void float_to_float(Warp& warp, const Instruction& i, uint32_t mask) {
  if (i.from_type == Type::kNone || i.to_type == i.from_type) {
    cannot_execute(warp, i);
  }
  write_floats(warp, i, mask, i.to_type, float_source_of(warp, i, i.from_type));
}

void round_float(Warp& warp, const Instruction& i, uint32_t mask) {
  const Type type = float_type(i);
  Doubles values = float_source_of(warp, i, type);
  for (double& value : values.v) {
    value = rounded(value, i.mods);
  }
  write_floats(warp, i, mask, type, values);
}

void float_to_integer(Warp& warp, const Instruction& i, uint32_t mask) {
  const Type type = integer_type(i);
  const Doubles values = float_source_of(warp, i, float_type(i));
  const bool from_double = float_type(i) == Type::kF64;
  const auto convert = [&](auto function) {
    WideLanes results;
    for (int lane = 0; lane < kLanes; ++lane) {
      results.v[lane] = function(rounded(values.v[lane], i.mods), from_double);
    }
    if (is_wide(type)) {
      warp.set_wide(i.to, results.v, mask);
    } else {
      set_each(warp, i, mask, [&](int lane) { return uint32_t(results.v[lane]); });
    }
  };
  switch (type) {
    case Type::kU8:
      convert(clamped<uint8_t>);
      break;
    case Type::kS8:
      convert(clamped<int8_t>);
      break;
    case Type::kU16:
      convert(clamped<uint16_t>);
      break;
    case Type::kS16:
      convert(clamped<int16_t>);
      break;
    case Type::kU32:
      convert(clamped<uint32_t>);
      break;
    case Type::kS64:
      convert(clamped<int64_t>);
      break;
    case Type::kU64:
      convert(clamped<uint64_t>);
      break;
    default:
      convert(clamped<int32_t>);
  }
}

void integer_to_float(Warp& warp, const Instruction& i, uint32_t mask) {
  const Type from = integer_type(i), to = float_type(i);
  const Part part = i.a.part;
  if (i.a.negate || i.a.invert || i.a.absolute || part == Part::kFloat) {
    cannot_execute(warp, i);
  }
  const int down = part >= Part::kByte0      ? 8 * (int(part) - int(Part::kByte0))
                   : part == Part::kHighHalf ? 16
                                             : 0;
  const uint32_t *low = warp.raw(i.a), *high = warp.raw(i.a, 1);
  const auto convert = [&](auto as_type) {
    using T = decltype(as_type);
    const auto value_of = [&](int lane) {
      const uint64_t bits =
          sizeof(T) == 8 ? uint64_t(high[lane]) << 32 | low[lane] : low[lane] >> down;
      return T(bits);
    };
    const Rounding rounding(i.mods);
    if (to == Type::kF64) {
      Doubles values;
      for (int lane = 0; lane < kLanes; ++lane) {
        values.v[lane] = double(value_of(lane));
      }
      warp.set_wide(i.to, reinterpret_cast<const uint64_t*>(values.v), mask);
    } else if (to == Type::kF32) {
      set_each(warp, i, mask, [&](int lane) { return bits_of(float(value_of(lane))); });
    } else if (to == Type::kF16) {
      // Doubles hold all that is not far out of the range of halves.
      constexpr T kFar = T(std::min<uint64_t>(1 << 20, uint64_t(std::numeric_limits<T>::max())));
      constexpr T kNegative =
          std::is_signed_v<T> && sizeof(T) > 2 ? T(-kFar) : std::numeric_limits<T>::min();
      set_each(warp, i, mask, [&](int lane) {
        const double value = double(std::clamp(value_of(lane), kNegative, kFar));
        return float_to_half(odd_float(value), half_rounding(i.mods));
      });
    } else {
      cannot_execute(warp, i);
    }
  };
  switch (from) {
    case Type::kU8:
      convert(uint8_t());
      break;
    case Type::kS8:
      convert(int8_t());
      break;
    case Type::kU16:
      convert(uint16_t());
      break;
    case Type::kS16:
      convert(int16_t());
      break;
    case Type::kU32:
      convert(uint32_t());
      break;
    case Type::kS64:
      convert(int64_t());
      break;
    case Type::kU64:
      convert(uint64_t());
      break;
    default:
      convert(int32_t());
  }
}

/// Two integers to 8 bits each, below what c holds already; the first to the higher place.
void pack_integers(Warp& warp, const Instruction& i, uint32_t mask) {
  if ((i.to_type != Type::kS8 && i.to_type != Type::kU8) || i.from_type != Type::kS32 ||
      !i.mods[Mod::kSAT]) {
    cannot_execute(warp, i);
  }
  Lanes space_a, space_b, space_c;
  const uint32_t *a = warp.integer(i.a, space_a), *b = warp.integer(i.b, space_b),
                 *c = warp.integer(i.c, space_c);
  const bool is_signed = i.to_type == Type::kS8;
  const auto narrow = [&](uint32_t value) {
    return uint32_t(std::clamp(int32_t(value), is_signed ? -128 : 0, is_signed ? 127 : 255)) & 0xff;
  };
  set_each(warp, i, mask,
           [&](int lane) { return c[lane] << 16 | narrow(a[lane]) << 8 | narrow(b[lane]); });
}

/// Two floats to 16 bits each, the first to the high half.
void pack_floats(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b;
  const float *a = float_source(warp, i, i.a, space_a), *b = float_source(warp, i, i.b, space_b);
  const bool bfloat = i.mods[Mod::kBF16], clears = i.mods[Mod::kRELU], to_zero = i.mods[Mod::kRZ];
  const auto narrow = [&](float value) -> uint32_t {
    if (value != value) {
      return kHalfNan;
    }
    if (clears && !(value > 0)) {
      return 0;
    }
    return bfloat ? float_to_bfloat(value, to_zero)
                  : float_to_half(value, to_zero ? HalfRounding::kZero : HalfRounding::kNear);
  };
  set_each(warp, i, mask, [&](int lane) { return narrow(a[lane]) << 16 | narrow(b[lane]); });
}

}  // namespace fake_cuda::operations
