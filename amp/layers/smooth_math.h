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
