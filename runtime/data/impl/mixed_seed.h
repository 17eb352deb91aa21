#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstdint>

namespace lockstep::detail {

/// SplitMix64: every bit of the seed changes about half of the result's, so neighbouring seeds give
/// unrelated streams of random numbers.
inline uint64_t mixed_seed(uint64_t seed) {
  uint64_t value = seed + 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31U);
}

/// The seed of stream `number` of `seed`.
inline uint64_t mixed_seed(uint64_t seed, uint64_t number) {
  return mixed_seed(seed + number * 0x9E3779B97F4A7C15ULL);
}

}  // namespace lockstep::detail
