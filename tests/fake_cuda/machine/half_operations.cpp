#include <cmath>

#include "elementwise.h"
#include "half.h"
#include "operations.h"

namespace fake_cuda::operations {
namespace {

/// The two numbers of each lane.
struct Pairs {
  float low[kLanes];
  float high[kLanes];
};

constexpr float kLeastHalf = 0x1p-14f;  // that is not denormal

bool is_bfloat(const Instruction& i) {
  return i.mods[Mod::kBF16_V2];
}

Pairs source(Warp& warp, const Instruction& i, const Operand& o) {
  const uint32_t* from = warp.raw(o);
  const bool bfloat = is_bfloat(i);
  if (o.part >= Part::kByte0) {
    cannot_execute(warp, i);
  }
  Pairs pairs;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t bits = from[lane];
    const uint32_t low = o.part == Part::kHighHalf ? bits >> 16 : bits & 0xffff;
    const uint32_t high = o.part == Part::kLowHalf ? bits & 0xffff : bits >> 16;
    if (o.part == Part::kFloat) {
      pairs.low[lane] = pairs.high[lane] = as_float(bits);
    } else {
      pairs.low[lane] = bfloat ? bfloat_to_float(low) : half_to_float(low);
      pairs.high[lane] = bfloat ? bfloat_to_float(high) : half_to_float(high);
    }
  }
  const float least = i.mods[Mod::kFTZ] && !bfloat && o.part != Part::kFloat ? kLeastHalf : 0;
  for (float* numbers : {pairs.low, pairs.high}) {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (std::fabs(numbers[lane]) < least) {
        numbers[lane] = std::copysign(0.0f, numbers[lane]);
      }
      const float value = o.absolute ? std::fabs(numbers[lane]) : numbers[lane];
      numbers[lane] = o.negate ? -value : value;
    }
  }
  return pairs;
}

/// Writes function(lane) of the low and of the high numbers, rounded once to 16 bits; with .F32 the
/// low one as a float.
template <typename Function>
void finish(Warp& warp, const Instruction& i, uint32_t mask, Function function) {
  const bool bfloat = is_bfloat(i), saturates = i.mods[Mod::kSAT], clears = i.mods[Mod::kRELU];
  const bool flushes = i.mods[Mod::kFTZ];
  const auto limited = [&](double value) {
    if (clears) {
      value = value > 0 ? value : value != value ? value : 0.0;
    }
    return saturates ? (value > 0 ? std::fmin(value, 1.0) : 0.0) : value;
  };
  const auto narrow = [&](double value) -> uint32_t {
    value = limited(value);
    if (value != value) {
      return kHalfNan;
    }
    if (bfloat) {
      return float_to_bfloat(odd_float(value));
    }
    const uint32_t half = float_to_half(odd_float(value));
    return flushes && (half & 0x7c00) == 0 ? half & 0x8000 : half;
  };
  if (i.mods[Mod::kF32]) {
    set_each(warp, i, mask, [&](int lane) {
      const float value = float(limited(function(lane, false)));
      return value == value ? bits_of(value) : kNan;
    });
    return;
  }
  set_each(warp, i, mask, [&](int lane) {
    return narrow(function(lane, true)) << 16 | narrow(function(lane, false));
  });
}

inline double part(const Pairs& pairs, int lane, bool high) {
  return high ? pairs.high[lane] : pairs.low[lane];
}

/// Where the comparison holds, for the low or the high numbers.
uint32_t compared(Warp& warp, const Instruction& i, const Pairs& a, const Pairs& b, bool high) {
  return high ? lanes_that_compare(warp, i, a.high, b.high)
              : lanes_that_compare(warp, i, a.low, b.low);
}

}  // namespace

void half_add(Warp& warp, const Instruction& i, uint32_t mask) {
  const Pairs a = source(warp, i, i.a), b = source(warp, i, i.b);
  finish(warp, i, mask,
         [&](int lane, bool high) { return part(a, lane, high) + part(b, lane, high); });
}

void half_multiply(Warp& warp, const Instruction& i, uint32_t mask) {
  const Pairs a = source(warp, i, i.a), b = source(warp, i, i.b);
  finish(warp, i, mask,
         [&](int lane, bool high) { return part(a, lane, high) * part(b, lane, high); });
}

/// The sum, rounded to odd: a second rounding to 16 bits then is the only one that shows. (Of
/// bfloat16 numbers a product may lie between two results and the addend far below it.)
static double odd_sum(double a, double b) {
  const double sum = a + b, from_b = sum - a;
  const double lost = (a - (sum - from_b)) + (b - from_b);
  if (!std::isfinite(sum) || lost == 0 || (bits_of(sum) & 1) != 0) {
    return sum;
  }
  return std::nextafter(sum, lost > 0 ? HUGE_VAL : -HUGE_VAL);
}

void half_multiply_add(Warp& warp, const Instruction& i, uint32_t mask) {
  const Pairs a = source(warp, i, i.a), b = source(warp, i, i.b), c = source(warp, i, i.c);
  finish(warp, i, mask, [&](int lane, bool high) {
    return odd_sum(part(a, lane, high) * part(b, lane, high), part(c, lane, high));
  });
}

/// One predicate for the low numbers, one for the high ones.
void half_compare(Warp& warp, const Instruction& i, uint32_t mask) {
  const Pairs a = source(warp, i, i.a), b = source(warp, i, i.b);
  const uint32_t low = joined(warp, i, compared(warp, i, a, b, false));
  const uint32_t high = joined(warp, i, compared(warp, i, a, b, true));
  warp.write(i.to_flag, low, mask);
  warp.write(i.to_flag2, high, mask);
}

void half_set(Warp& warp, const Instruction& i, uint32_t mask) {
  const Pairs a = source(warp, i, i.a), b = source(warp, i, i.b);
  const uint32_t low = joined(warp, i, compared(warp, i, a, b, false));
  const uint32_t high = joined(warp, i, compared(warp, i, a, b, true));
  const uint32_t yes = i.mods[Mod::kBF] ? (is_bfloat(i) ? 0x3f80 : 0x3c00) : 0xffff;
  set_each(warp, i, mask, [&](int lane) {
    return (low >> lane & 1 ? yes : 0) | (high >> lane & 1 ? yes : 0) << 16;
  });
}

void half_minmax(Warp& warp, const Instruction& i, uint32_t mask) {
  const Pairs a = source(warp, i, i.a), b = source(warp, i, i.b);
  const uint32_t min = warp.read(i.p);
  const bool keeps_nan = i.mods[Mod::kNAN];
  finish(warp, i, mask, [&](int lane, bool high) {
    const double x = part(a, lane, high), y = part(b, lane, high);
    if (x != x || y != y) {
      return keeps_nan || (x != x && y != y) ? std::nan("") : x != x ? y : x;
    }
    const bool less = x == 0 && y == 0 ? std::signbit(x) && !std::signbit(y) : x < y;
    return less == bool(min >> lane & 1) ? x : y;
  });
}

}  // namespace fake_cuda::operations
