#pragma once

#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>

/// 16-bit floats: halves and bfloat16.
namespace fake_cuda {

inline float half_to_float(uint32_t half) {
  return _cvtsh_ss(uint16_t(half));
}
inline float bfloat_to_float(uint32_t bits) {
  return std::bit_cast<float>(bits << 16);
}

/// The float next to the value towards zero, with the last bit set if that is not exact ("round to
/// odd"). A second rounding to fewer bits then gives what one rounding would.
inline float odd_float(double value) {
  const float near = float(value);
  uint32_t bits = std::bit_cast<uint32_t>(near);
  if (double(near) == value || value != value) {
    return near;
  }
  if (std::fabs(double(near)) > std::fabs(value)) {
    --bits;
  }
  return std::bit_cast<float>(bits | 1);
}

enum class HalfRounding { kNear = 0, kDown = 1, kUp = 2, kZero = 3 };

inline uint32_t float_to_half(float value, HalfRounding rounding = HalfRounding::kNear) {
  switch (rounding) {
    case HalfRounding::kDown:
      return uint16_t(_cvtss_sh(value, 1));
    case HalfRounding::kUp:
      return uint16_t(_cvtss_sh(value, 2));
    case HalfRounding::kZero:
      return uint16_t(_cvtss_sh(value, 3));
    default:
      return uint16_t(_cvtss_sh(value, 0));
  }
}

/// Not for NaN.
inline uint32_t float_to_bfloat(float value, bool to_zero = false) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return to_zero ? bits >> 16 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

}  // namespace fake_cuda
