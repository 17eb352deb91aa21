#pragma once

#include <lockstep/amp/host_device.h>

#include <cstdint>

namespace lockstep::amp {

/// e^x in fp32 to 2 units in the last place, without branches or tables, so that loops over it are
/// vectorised: x = n ln 2 + r, a polynomial in r (Cephes' coefficients), 2^n by its bits. Arguments
/// are held to -87..88; NaN stays NaN.
LOCKSTEP_HOST_DEVICE float exp_of(float x) {
  const float held = x > -87.0F ? (x < 88.0F ? x : 88.0F) : -87.0F;  // NaN: -87
  const float shifted = held * 1.44269504F + 12582912.0F;  // 1.5 * 2^23 rounds to an integer
  const float n = shifted - 12582912.0F;
  const float r = held - n * 0.693359375F + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  union {
    int32_t bits;
    float value;
  } power;
  power.bits = (static_cast<int32_t>(n) + 127) << 23;
  return x != x ? x : p * power.value;
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

LOCKSTEP_HOST_DEVICE float tanh_of(float x) {
  return 1.0F - 2.0F / (exp_of(2.0F * x) + 1.0F);
}

/// GELU in its tanh form (Hendrycks and Gimpel, 2016): x/2 (1 + tanh(sqrt(2/pi)(x + 0.044715
/// x^3))).
LOCKSTEP_HOST_DEVICE float gelu_of(float x) {
  return 0.5F * x * (1.0F + tanh_of(0.7978845608F * (x + 0.044715F * x * x * x)));
}

LOCKSTEP_HOST_DEVICE float gelu_slope(float x) {
  const float t = tanh_of(0.7978845608F * (x + 0.044715F * x * x * x));
  const float inner = 0.7978845608F * (1.0F + 3.0F * 0.044715F * x * x);
  return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * inner;
}

}  // namespace lockstep::amp
