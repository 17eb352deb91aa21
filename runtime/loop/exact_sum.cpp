#include <lockstep/runtime/loop/own/exact_sum.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace lockstep::detail {
namespace {

// Word i counts multiples of 2^(32 i - 1074); 2^-1074 is the smallest double. Three more words
// count NaN and both infinities.
constexpr int kLimbs = 68;
constexpr int kNan = kLimbs;
constexpr int kPositiveInfinity = kLimbs + 1;
constexpr int kNegativeInfinity = kLimbs + 2;
static_assert(kExactSumWords == kLimbs + 3);

constexpr int kLowestBit = -1074;
constexpr uint64_t kLowHalf = 0xffffffffU;
constexpr int64_t kLimbUnit = int64_t{1} << 32;
constexpr int64_t kAddsBetweenCarries = 1 << 20;  // a limb may overflow after 2^29

/// Brings every limb but the last into [0, 2^32), so that equal sums have equal limbs.
void carry(int64_t* words) {
  for (int i = 0; i + 1 < kLimbs; ++i) {
    int64_t up = words[i] / kLimbUnit;
    if (words[i] - up * kLimbUnit < 0) {
      --up;
    }
    words[i] -= up * kLimbUnit;
    words[i + 1] += up;
  }
}

void add_one(int64_t* words, double value) {
  if (!std::isfinite(value)) {
    ++words[std::isnan(value) ? kNan : value > 0 ? kPositiveInfinity : kNegativeInfinity];
    return;
  }
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto exponent = static_cast<int>(bits >> 52U & 0x7ffU);
  const uint64_t fraction = bits & ((uint64_t{1} << 52U) - 1);
  const uint64_t mantissa = exponent > 0 ? fraction | uint64_t{1} << 52U : fraction;
  const int place = std::max(exponent, 1) - 1;  // of the mantissa's lowest bit
  const auto shift = static_cast<unsigned>(place % 32);
  const uint64_t low = (mantissa & kLowHalf) << shift;
  const uint64_t high = (mantissa >> 32U) << shift;
  const int64_t sign = std::signbit(value) ? -1 : 1;
  int64_t* limb = words + place / 32;
  limb[0] += sign * static_cast<int64_t>(low & kLowHalf);
  limb[1] += sign * static_cast<int64_t>((low >> 32U) + (high & kLowHalf));
  limb[2] += sign * static_cast<int64_t>(high >> 32U);
}

/// Converts limbs from carry(), not negative. Only the highest 64 bits are converted, with the
/// lowest of them set if any bit below is: so there is one rounding.
double rounded(const std::array<int64_t, kLimbs>& limbs) {
  int high = kLimbs - 1;
  while (high > 0 && limbs[static_cast<size_t>(high)] == 0) {
    --high;
  }
  if (32 * high + kLowestBit > std::numeric_limits<double>::max_exponent) {
    return std::numeric_limits<double>::infinity();
  }
  const auto limb = [&](int i) {
    return i < 0 ? 0 : static_cast<uint64_t>(limbs[static_cast<size_t>(i)]);
  };
  uint64_t top = limb(high) << 32U | limb(high - 1);
  if (top == 0) {
    return 0.0;
  }
  uint64_t rest = limb(high - 2) << 32U | limb(high - 3);
  const int shift = __builtin_clzll(top);
  if (shift > 0) {
    top = top << shift | rest >> (64 - shift);
    rest <<= shift;
  }
  for (int i = 0; i < high - 3; ++i) {
    rest |= limb(i);
  }
  return std::ldexp(static_cast<double>(top | (rest != 0 ? 1U : 0U)),
                    32 * (high - 1) - shift + kLowestBit);
}

}  // namespace

void add_exactly(int64_t* words, const double* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    add_one(words, values[i]);
    if (i % kAddsBetweenCarries == kAddsBetweenCarries - 1) {
      carry(words);
    }
  }
  carry(words);
}

double rounded_sum(const int64_t* words) {
  if (words[kNan] > 0 || (words[kPositiveInfinity] > 0 && words[kNegativeInfinity] > 0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (words[kPositiveInfinity] > 0 || words[kNegativeInfinity] > 0) {
    const double infinity = std::numeric_limits<double>::infinity();
    return words[kPositiveInfinity] > 0 ? infinity : -infinity;
  }
  std::array<int64_t, kLimbs> limbs{};
  std::copy_n(words, kLimbs, limbs.begin());
  carry(limbs.data());
  const bool negative = limbs.back() < 0;
  if (negative) {
    for (int64_t& limb : limbs) {
      limb = -limb;
    }
    carry(limbs.data());
  }
  return negative ? -rounded(limbs) : rounded(limbs);
}

}  // namespace lockstep::detail
