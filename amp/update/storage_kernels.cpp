#include <lockstep/amp/impl/arithmetic.h>
#include <lockstep/amp/impl/storage_kernels.h>
#include <lockstep/amp/update/brain_rounding.h>

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/amp/update/storage_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Compiled once for each instruction set: the compiler vectorises the loops for it.
HWY_BEFORE_NAMESPACE();
namespace lockstep::amp {
namespace HWY_NAMESPACE {

void random_brains(uint16_t* HWY_RESTRICT to, const float* HWY_RESTRICT from, int64_t size,
                   RandomBits random, int64_t first) {
  constexpr int64_t kGroup = 256;
  constexpr int64_t kCacheLine = 64 / sizeof(uint16_t);
  for (int64_t begin = 0; begin < size; begin += kGroup) {
    uint32_t draws[kGroup / 2];
    for (int64_t i = 0; i < kGroup / 2; ++i) {
      draws[i] = random(static_cast<uint32_t>((first + begin) / 2 + i));
    }
    uint16_t bits[kGroup];  // the low half of a draw comes first
    std::memcpy(bits, draws, sizeof bits);
    const int64_t count = std::min(kGroup, size - begin);
    // Prefetch: the caller reads the next block soon, and this loop leaves the memory idle.
    for (int64_t i = 0; i < kGroup; i += kCacheLine) {
      __builtin_prefetch(to + size + begin + i, 1);
    }
    for (int64_t i = 0; i < count; ++i) {
      to[begin + i] = brain_randomly(from[begin + i], bits[i]);
    }
  }
}

void split_all(uint16_t* HWY_RESTRICT weights, int16_t* HWY_RESTRICT rests,
               const float* HWY_RESTRICT masters, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    const BrainAndRest parts = split_master(masters[i]);
    weights[i] = parts.brain;
    rests[i] = parts.rest;
  }
}

void join_all(float* HWY_RESTRICT masters, const uint16_t* HWY_RESTRICT weights,
              const int16_t* HWY_RESTRICT rests, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    masters[i] = join_master(weights[i], rests[i]);
  }
}

void widen_all(double* HWY_RESTRICT to, const float* HWY_RESTRICT from, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    to[i] = from[i];
  }
}

template <typename T>
HWY_INLINE void average_all(T* HWY_RESTRICT average, const T* HWY_RESTRICT from, int64_t size,
                            T rest) {
  for (int64_t i = 0; i < size; ++i) {
    average[i] = moved_towards(average[i], from[i], rest);
  }
}
void average_floats(float* average, const float* from, int64_t size, float rest) {
  average_all(average, from, size, rest);
}
void average_doubles(double* average, const double* from, int64_t size, double rest) {
  average_all(average, from, size, rest);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::amp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::amp {

HWY_EXPORT(random_brains);
HWY_EXPORT(split_all);
HWY_EXPORT(join_all);
HWY_EXPORT(widen_all);
HWY_EXPORT(average_floats);
HWY_EXPORT(average_doubles);

void round_randomly(uint16_t* to, const float* from, int64_t size, RandomBits random,
                    int64_t first) {
  HWY_DYNAMIC_DISPATCH(random_brains)(to, from, size, random, first);
}
void split_masters(uint16_t* weights, int16_t* rests, const float* masters, int64_t size) {
  HWY_DYNAMIC_DISPATCH(split_all)(weights, rests, masters, size);
}
void join_masters(float* masters, const uint16_t* weights, const int16_t* rests, int64_t size) {
  HWY_DYNAMIC_DISPATCH(join_all)(masters, weights, rests, size);
}
void widen(double* to, const float* from, int64_t size) {
  HWY_DYNAMIC_DISPATCH(widen_all)(to, from, size);
}
void move_towards(float* average, const float* from, int64_t size, float rest) {
  HWY_DYNAMIC_DISPATCH(average_floats)(average, from, size, rest);
}
void move_towards(double* average, const double* from, int64_t size, double rest) {
  HWY_DYNAMIC_DISPATCH(average_doubles)(average, from, size, rest);
}

}  // namespace lockstep::amp
#endif
