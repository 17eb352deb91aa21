#pragma once

#include <lockstep/amp/impl/host_device.h>

#include <cmath>
#include <cstdint>

namespace lockstep::amp {

/// The larger and the smaller of two numbers; `a` if `b` is NaN.
LOCKSTEP_HOST_DEVICE float larger_of(float a, float b) {
#ifdef __CUDA_ARCH__
  return fmaxf(a, b);  // one instruction; the compiler makes two of the comparison
#else
  return b > a ? b : a;
#endif
}
LOCKSTEP_HOST_DEVICE float smaller_of(float a, float b) {
#ifdef __CUDA_ARCH__
  return fminf(a, b);
#else
  return b < a ? b : a;
#endif
}

/// 1.5 * 2^23. Adding it rounds to an integer, which is in the low bits of the sum.
constexpr float kToInteger = 12582912.0F;

/// 2^n for n = shifted - kToInteger, from -127 (0) to 128 (infinity).
LOCKSTEP_HOST_DEVICE float power_of_two(float shifted) {
  union {
    float value;
    uint32_t bits;
  } power;
  power.value = shifted;
  power.bits = (power.bits << 23U) + 0x3f800000U;
  return power.value;
}

/// e^x in fp32 with a relative error below 2e-7, without branches or tables, so that loops over it
/// are vectorised: x = n ln 2 + r, a polynomial in r, 2^n by its bits. Arguments below -87 count as
/// -87; those above 88 are not allowed; NaN stays NaN.
LOCKSTEP_HOST_DEVICE float exp_of(float x) {
  const float held = x < -87.0F ? -87.0F : x;
  const float shifted = held * 1.44269504F + kToInteger;
  const float n = shifted - kToInteger;
  const float r = held - n * 0.693359375F + n * 2.12194440e-4F;
  float p = 8.31251126e-3F;
  p = p * r + 4.18902375e-2F;
  p = p * r + 1.66671157e-1F;
  p = p * r + 4.99992311e-1F;
  p = p * (r * r) + r + 1.0F;
  return p * power_of_two(shifted);
}

/// 2^x in fp32 to 3 units in the last place for x from -126 up to `most`, at most 128. Larger ones
/// count as `most`, those below -127 as -127; NaN as one of the two. 2^-127 is 0, 2^128 infinity.
LOCKSTEP_HOST_DEVICE float exp2_of(float x, float most) {
  const float held = smaller_of(most, larger_of(-127.0F, x));
  const float shifted = held + kToInteger;
  const float r = held - (shifted - kToInteger);
  float p = 1.32646994e-3F;
  p = p * r + 9.67153349e-3F;
  p = p * r + 5.55073395e-2F;
  p = p * r + 2.40222424e-1F;
  p = p * r + 6.93147004e-1F;
  p = p * r + 1.0F;
  return p * power_of_two(shifted);
}

/// The natural logarithm of a number from 2^-126 on, in fp32 to 1 unit in the last place; infinity
/// and NaN stay what they are. The same bits on hosts and devices: x = 2^n (1 + r) with the factor
/// between sqrt(1/2) and sqrt(2), a polynomial in r (Cephes' coefficients), n ln 2 in two parts.
LOCKSTEP_HOST_DEVICE float log_of(float x) {
  union {
    float value;
    uint32_t bits;
  } number;
  number.value = x;
  const int32_t exponent = static_cast<int32_t>(number.bits - 0x3f3504f3U) >> 23;
  number.bits -= static_cast<uint32_t>(exponent) << 23U;
  const float n = static_cast<float>(exponent);
  const float r = number.value - 1.0F;
  float p = 7.0376836292e-2F;
  p = p * r - 1.1514610310e-1F;
  p = p * r + 1.1676998740e-1F;
  p = p * r - 1.2420140846e-1F;
  p = p * r + 1.4249322787e-1F;
  p = p * r - 1.6668057665e-1F;
  p = p * r + 2.0000714765e-1F;
  p = p * r - 2.4999993993e-1F;
  p = p * r + 3.3333331174e-1F;
  const float square = r * r;
  p = p * r * square - n * 2.12194440e-4F - 0.5F * square;
  return x - x == 0.0F ? (r + p) + n * 0.693359375F : x;
}

/// e^(-2 u) for u = sqrt(2/pi) (x + 0.044715 x^3): GELU's tanh form (Hendrycks and Gimpel, 2016),
/// x/2 (1 + tanh(u)), is x / (1 + e^(-2 u)).
LOCKSTEP_HOST_DEVICE float gelu_exponential(float x, float most) {
  return exp2_of(x * (-2.30220820F - 0.102943240F * (x * x)), most);
}

LOCKSTEP_HOST_DEVICE float gelu_of(float x) {
  return x / (1.0F + gelu_exponential(x, 128.0F));
}

/// With s = 1 / (1 + e): s + x s (1 - s) 2 u', where 1 - s = e s. For x from -1e10 to 1e19.
LOCKSTEP_HOST_DEVICE float gelu_slope(float x) {
  const float e = gelu_exponential(x, 126.0F);
  const float s = 1.0F / (1.0F + e);
  return s + x * (1.59576912F + 0.214064449F * (x * x)) * (e * s * s);
}

}  // namespace lockstep::amp
