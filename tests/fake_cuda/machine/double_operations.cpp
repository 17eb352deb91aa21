#include <cmath>

#include "elementwise.h"
#include "operations.h"

namespace fake_cuda::operations {
namespace {

struct Doubles {
  alignas(32) double v[kLanes];
};

Doubles source(Warp& warp, const Operand& o) {
  const uint32_t *low = warp.raw(o), *high = warp.raw(o, 1);
  const uint64_t keep = o.absolute ? ~uint64_t(0) >> 1 : ~uint64_t(0);
  const uint64_t flip = o.negate ? uint64_t(1) << 63 : 0;
  Doubles values;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t bits = uint64_t(high[lane]) << 32 | low[lane];
    values.v[lane] = as_double((bits & keep) ^ flip);
  }
  return values;
}

void finish(Warp& warp, const Instruction& i, const Doubles& values, uint32_t mask) {
  warp.set_wide(i.to, reinterpret_cast<const uint64_t*>(values.v), mask);
}

}  // namespace

void double_add(Warp& warp, const Instruction& i, uint32_t mask) {
  const Rounding rounding(i.mods);
  const Doubles a = source(warp, i.a), b = source(warp, i.b);
  Doubles sum;
  for (int lane = 0; lane < kLanes; ++lane) {
    sum.v[lane] = a.v[lane] + b.v[lane];
  }
  finish(warp, i, sum, mask);
}

void double_multiply(Warp& warp, const Instruction& i, uint32_t mask) {
  const Rounding rounding(i.mods);
  const Doubles a = source(warp, i.a), b = source(warp, i.b);
  Doubles product;
  for (int lane = 0; lane < kLanes; ++lane) {
    product.v[lane] = a.v[lane] * b.v[lane];
  }
  finish(warp, i, product, mask);
}

void double_multiply_add(Warp& warp, const Instruction& i, uint32_t mask) {
  const Rounding rounding(i.mods);
  const Doubles a = source(warp, i.a), b = source(warp, i.b), c = source(warp, i.c);
  Doubles sum;
  for (int lane = 0; lane < kLanes; ++lane) {
    sum.v[lane] = __builtin_fma(a.v[lane], b.v[lane], c.v[lane]);
  }
  finish(warp, i, sum, mask);
}

void double_compare(Warp& warp, const Instruction& i, uint32_t mask) {
  const Doubles a = source(warp, i.a), b = source(warp, i.b);
  const bool is_min = i.mods[Mod::kMIN];
  if (!is_min && !i.mods[Mod::kMAX]) {
    write_comparison(warp, i, lanes_that_compare(warp, i, a.v, b.v), mask);
    return;
  }
  // Selects that follow take the first number where the first predicate holds, and make the second
  // number a quiet NaN where the second predicate does: a number wins over NaN.
  const uint32_t a_is_nan = lanes_where([&](int lane) { return a.v[lane] != a.v[lane]; });
  const uint32_t b_is_nan = lanes_where([&](int lane) { return b.v[lane] != b.v[lane]; });
  const uint32_t takes_first = lanes_where([&](int lane) {
    const double x = a.v[lane], y = b.v[lane];
    const bool less = x == 0 && y == 0 ? std::signbit(x) && !std::signbit(y) : x < y;
    const bool more = x == 0 && y == 0 ? !std::signbit(x) && std::signbit(y) : x > y;
    return is_min ? less : more;
  });
  warp.write(i.to_flag, takes_first | (b_is_nan & ~a_is_nan), mask);
  warp.write(i.to_flag2, a_is_nan & b_is_nan, mask);
}

}  // namespace fake_cuda::operations
