#pragma once

#include <lockstep/amp/host_device.h>

#include <cmath>
#include <cstdint>

namespace lockstep::amp {

/// Eight-bit numbers for moments, block-wise, after the dynamic data type of Dettmers et al.
/// ("8-bit Optimizers via Block-wise Quantization", 2022): the leading one bit of a code says the
/// decade below the block's largest magnitude, the bits after it the place within the decade.
///
/// First moments have a sign bit and 7 decades of 1 to 64 levels; second moments are kept as their
/// square root, in 8 decades of 1 to 128 levels. An element becomes one of the two levels around
/// it, at random so that the mean is right: in the highest decade, where the levels are closest to
/// each other for their size, its error is below a 70th of the block's largest magnitude
/// (a 141st for the root); one decade down a fifth of that, and so on. A second moment that is
/// not 0 never becomes 0.
struct EightBitCode {
  int bits;  // of the magnitude: 7 or 8

  LOCKSTEP_HOST_DEVICE int top() const { return (1 << bits) - 1; }

  /// The magnitude of a code as a fraction of the largest, rising with the code; 0 for 0.
  LOCKSTEP_HOST_DEVICE float level(int code) const {
    if (code == 0) {
      return 0.0F;
    }
    int place = 0;  // of the leading one
    while ((code >> (place + 1)) != 0) {
      ++place;
    }
    double decade = 1.0;
    for (int k = place; k < bits - 1; ++k) {
      decade *= 0.1;
    }
    const double levels = static_cast<double>(1 << place);
    return static_cast<float>(decade * (0.1 + 0.9 * (code - levels + 0.5) / levels));
  }
};

/// The levels of a code, and its search as plain arithmetic, so that it runs in SIMD lanes and on a
/// device alike.
struct EightBitLevels {
  float level[257];  // one more than there are codes: the last repeats the top
  float tenfold[8];  // 1, 10, 100, ...
  int bits;
  int top;

  LOCKSTEP_HOST_DEVICE static EightBitLevels of(EightBitCode code) {
    EightBitLevels levels;
    levels.fill(code, 0, 1);
    return levels;
  }

  /// What thread `thread` of `threads` does to set the table; all of them set all of it.
  LOCKSTEP_HOST_DEVICE void fill(EightBitCode code, int thread, int threads) {
    if (thread == 0) {
      bits = code.bits;
      top = code.top();
      float power = 1.0F;
      for (float& each : tenfold) {
        each = power;
        power *= 10.0F;
      }
    }
    for (int i = thread; i < 257; i += threads) {
      level[i] = code.level(i < code.top() ? i : code.top());
    }
  }

  /// The code next below or above `fraction` (0 to level[top]); `random` in [0, 1) chooses.
  LOCKSTEP_HOST_DEVICE int encode(float fraction, float random) const {
    // No branch and no loop, so that a loop over elements vectorises.
    const int below = (fraction < 1e-1F) + (fraction < 1e-2F) + (fraction < 1e-3F) +
                      (fraction < 1e-4F) + (fraction < 1e-5F) + (fraction < 1e-6F) +
                      (fraction < 1e-7F);
    const int decade = below < bits - 1 ? below : bits - 1;
    const int place = bits - 1 - decade;
    const float scaled = fraction * tenfold[decade];
    const int levels = 1 << place;
    const float position = (scaled - 0.1F) * (1.0F / 0.9F) * static_cast<float>(levels) - 0.5F;
    const int low = levels + static_cast<int>(position + 1.0F) - 1;  // rounded down: it is > -1
    const int lower = low < top ? low : top;
    const float gap = level[lower + 1] - level[lower];
    return lower + (lower < top && fraction - level[lower] > random * gap ? 1 : 0);
  }
};

/// Both tables: of first moments, with a sign, and of second ones.
struct EightBitTables {
  EightBitLevels levels[2];

  LOCKSTEP_HOST_DEVICE static EightBitTables of() {
    EightBitTables tables;
    tables.fill(0, 1);
    return tables;
  }
  LOCKSTEP_HOST_DEVICE void fill(int thread, int threads) {
    levels[0].fill({7}, thread, threads);
    levels[1].fill({8}, thread, threads);
  }
  /// Of second moments if `square`.
  LOCKSTEP_HOST_DEVICE const EightBitLevels& of_moment(bool square) const {
    return levels[square ? 1 : 0];
  }
};

/// What is coded of an element: its magnitude, of a second moment the root. Held below a bound, so
/// that neither a scale nor a square becomes infinite.
template <bool kSquare>
LOCKSTEP_HOST_DEVICE float coded_magnitude(float value) {
  const float size = kSquare ? std::sqrt(value) : std::fabs(value);
  constexpr float kLargest = kSquare ? 1.8e19F : 3.3e38F;
  return size < kLargest ? size : kLargest;
}

/// What the elements of a block share, from the largest of their magnitudes.
struct EightBitBlock {
  float scale;    // kept beside the codes
  float inverse;  // magnitude * inverse = fraction

  LOCKSTEP_HOST_DEVICE static EightBitBlock of(const EightBitLevels& levels, float largest) {
    constexpr float kSmallest = 1.2e-38F;  // below that the inverse would be infinite
    const float highest = levels.level[levels.top];
    const bool zero = largest < kSmallest;
    return {zero ? 0.0F : largest / highest, zero ? 0.0F : highest / largest};
  }
};

template <bool kSquare>
LOCKSTEP_HOST_DEVICE int eight_bit_code(const EightBitLevels& levels, float value, float magnitude,
                                        float inverse, uint32_t random) {
  const float fraction = magnitude * inverse;
  const int code =
      levels.encode(fraction, static_cast<float>(static_cast<int>(random >> 8U)) * 0x1p-24F);
  return kSquare ? (code == 0 && fraction > 0.0F ? 1 : code) : code | (value < 0.0F ? 0x80 : 0);
}

template <bool kSquare>
LOCKSTEP_HOST_DEVICE float eight_bit_value(const float* level, int code, float scale) {
  const float magnitude = level[kSquare ? code : code & 0x7f] * scale;
  return kSquare ? magnitude * magnitude : ((code & 0x80) != 0 ? -magnitude : magnitude);
}

}  // namespace lockstep::amp
