#pragma once

#include <lockstep/amp/impl/host_device.h>

#include <cstdint>
#include <cstring>

namespace lockstep::amp {

LOCKSTEP_HOST_DEVICE uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
LOCKSTEP_HOST_DEVICE float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// Rounds `value` randomly to one of the two nearest bf16 numbers, so that the mean over the low 16
/// bits of `random` is `value`. Infinities and NaN stay.
LOCKSTEP_HOST_DEVICE uint16_t brain_randomly(float value, uint32_t random) {
  const uint32_t bits = bits_of(value);
  const bool finite = (bits & 0x7f800000U) != 0x7f800000U;
  return static_cast<uint16_t>((bits + (finite ? random & 0xffffU : 0U)) >> 16U);
}

/// An fp32 number as the nearest bf16 number and a 16-bit remainder that together give it exactly.
/// Half way between two bf16 numbers (one value in 65,536) the larger magnitude is taken, unlike in
/// rounding to nearest even.
struct BrainAndRest {
  uint16_t brain;
  int16_t rest;
};

LOCKSTEP_HOST_DEVICE BrainAndRest split_master(float master) {
  const uint32_t bits = bits_of(master);
  const bool finite = (bits & 0x7f800000U) != 0x7f800000U;
  const uint32_t high = (bits + (finite ? 0x8000U : 0U)) >> 16U;
  return {static_cast<uint16_t>(high), static_cast<int16_t>(bits - (high << 16U))};
}

LOCKSTEP_HOST_DEVICE float join_master(uint16_t brain, int16_t rest) {
  return float_of((static_cast<uint32_t>(brain) << 16U) +
                  static_cast<uint32_t>(static_cast<int32_t>(rest)));
}

}  // namespace lockstep::amp
