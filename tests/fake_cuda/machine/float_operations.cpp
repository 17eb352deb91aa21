#include <algorithm>
#include <cmath>

#include "elementwise.h"
#include "operations.h"

namespace fake_cuda::operations {
namespace {

/// Writes results with one NaN for all, and what .FTZ and .SAT ask for.
void finish(Warp& warp, const Instruction& i, const float* values, uint32_t mask) {
  Lanes result;
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value = values[lane];
    result.v[lane] = value == value ? bits_of(value) : kNan;
  }
  if (i.mods[Mod::kFTZ]) {
    for (uint32_t& bits : result.v) {
      bits = flushed(bits);
    }
  }
  if (i.mods[Mod::kSAT]) {
    for (uint32_t& bits : result.v) {
      const float value = as_float(bits);
      bits = value > 0 ? bits_of(std::min(value, 1.0f)) : 0;  // NaN becomes zero
    }
  }
  warp.set(i.to, result.v, mask);
}

}  // namespace

void float_add(Warp& warp, const Instruction& i, uint32_t mask) {
  const Rounding rounding(i.mods);
  Lanes space_a, space_b;
  const float *a = float_source(warp, i, i.a, space_a), *b = float_source(warp, i, i.b, space_b);
  alignas(32) float sum[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    sum[lane] = a[lane] + b[lane];
  }
  finish(warp, i, sum, mask);
}

void float_multiply(Warp& warp, const Instruction& i, uint32_t mask) {
  const Rounding rounding(i.mods);
  Lanes space_a, space_b;
  const float *a = float_source(warp, i, i.a, space_a), *b = float_source(warp, i, i.b, space_b);
  alignas(32) float product[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    product[lane] = a[lane] * b[lane];
  }
  finish(warp, i, product, mask);
}

void float_multiply_add(Warp& warp, const Instruction& i, uint32_t mask) {
  const Rounding rounding(i.mods);
  Lanes space_a, space_b, space_c;
  const float *a = float_source(warp, i, i.a, space_a), *b = float_source(warp, i, i.b, space_b),
              *c = float_source(warp, i, i.c, space_c);
  alignas(32) float sum[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    sum[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
  }
  finish(warp, i, sum, mask);
}

void float_compare(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b;
  const float *a = float_source(warp, i, i.a, space_a), *b = float_source(warp, i, i.b, space_b);
  write_comparison(warp, i, lanes_that_compare(warp, i, a, b), mask);
}

void float_set(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b;
  const float *a = float_source(warp, i, i.a, space_a), *b = float_source(warp, i, i.b, space_b);
  const uint32_t value = joined(warp, i, lanes_that_compare(warp, i, a, b));
  const uint32_t yes = i.mods[Mod::kBF] ? bits_of(1.0f) : ~0u;
  set_each(warp, i, mask, [&](int lane) { return value >> lane & 1 ? yes : 0; });
}

void float_select(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b;
  const float *a = float_source(warp, i, i.a, space_a), *b = float_source(warp, i, i.b, space_b);
  const uint32_t first = warp.read(i.p);
  set_each(warp, i, mask, [&](int lane) { return bits_of(first >> lane & 1 ? a[lane] : b[lane]); });
}

/// A number wins over NaN (with .NAN the NaN does), -0 is less than +0.
void float_minmax(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b;
  const float *a = float_source(warp, i, i.a, space_a), *b = float_source(warp, i, i.b, space_b);
  const uint32_t min = warp.read(i.p);
  const bool keeps_nan = i.mods[Mod::kNAN];
  set_each(warp, i, mask, [&](int lane) {
    const uint32_t x = bits_of(a[lane]), y = bits_of(b[lane]);
    const bool x_is_nan = a[lane] != a[lane], y_is_nan = b[lane] != b[lane];
    if (x_is_nan || y_is_nan) {
      return (x_is_nan && y_is_nan) || keeps_nan ? kNan : x_is_nan ? y : x;
    }
    const bool both_zero = a[lane] == 0 && b[lane] == 0;
    const bool less = both_zero ? x > y : a[lane] < b[lane];
    return less == bool(min >> lane & 1) ? x : y;
  });
}

/// The exact value, rounded. A device's tables give other last bits; both treat denormals as zero,
/// as the code that the compiler puts around the instruction shows.
void float_function(Warp& warp, const Instruction& i, uint32_t mask) {
  const Mods& m = i.mods;
  if (m[Mod::kRCP64H] || m[Mod::kRSQ64H]) {
    // The high word of a double; the low one counts as zero.
    const bool is_root = m[Mod::kRSQ64H];
    Lanes space;
    const uint32_t* a = reinterpret_cast<const uint32_t*>(warp.real(i.a, space));
    set_each(warp, i, mask, [&](int lane) {
      const double value = as_double(uint64_t(a[lane]) << 32);
      const double result = is_root ? 1 / std::sqrt(value) : 1 / value;
      return uint32_t(bits_of(result) >> 32);
    });
    return;
  }
  Lanes space;
  const float* a = warp.real(i.a, space);
  const auto apply = [&](auto function) {
    set_each(warp, i, mask, [&](int lane) {
      if ((mask >> lane & 1) == 0) {
        return 0u;
      }
      const float value = float(function(double(flushed(a[lane]))));
      return value == value ? flushed(bits_of(value)) : kNan;
    });
  };
  constexpr double kTurn = 6.283185307179586476925;  // sin and cos take parts of a turn
  if (m[Mod::kRCP]) {
    apply([](double x) { return 1 / x; });
  } else if (m[Mod::kRSQ]) {
    apply([](double x) { return 1 / std::sqrt(x); });
  } else if (m[Mod::kSQRT]) {
    apply([](double x) { return std::sqrt(x); });
  } else if (m[Mod::kEX2]) {
    apply([](double x) { return std::exp2(x); });
  } else if (m[Mod::kLG2]) {
    apply([](double x) { return std::log2(x); });
  } else if (m[Mod::kSIN]) {
    apply([](double x) { return std::sin(x * kTurn); });
  } else if (m[Mod::kCOS]) {
    apply([](double x) { return std::cos(x * kTurn); });
  } else if (m[Mod::kTANH]) {
    apply([](double x) { return std::tanh(x); });
  } else {
    cannot_execute(warp, i);
  }
}

/// Whether a / b needs the long way of the division (extreme exponents, zero, infinity, NaN).
void float_check_division(Warp& warp, const Instruction& i, uint32_t mask) {
  Lanes space_a, space_b;
  const float *a = warp.real(i.a, space_a), *b = warp.real(i.b, space_b);
  warp.write(
      i.to_flag, lanes_where([&](int lane) {
        const int x = int(bits_of(a[lane]) >> 23 & 255), y = int(bits_of(b[lane]) >> 23 & 255);
        const bool is_usual = x > 30 && x < 220 && y > 30 && y < 220 && x - y < 100 && y - x < 100;
        return !is_usual;
      }),
      mask);
}

}  // namespace fake_cuda::operations
