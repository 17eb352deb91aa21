#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/random_bits.h>

#include <cstdint>

namespace lockstep::amp {

// Conversions between fp32 and the narrower forms in which an update keeps weights and moments.
// Bits do not depend on the processor. Any thread.

/// fp32 to bf16 with random bits for elements `first`, `first` + 1, ...; `first` is even.
void round_randomly(uint16_t* to, const float* from, int64_t size, RandomBits random,
                    int64_t first);

/// fp32 masters to bf16 weights and 16-bit remainders (split_master()), and back.
void split_masters(uint16_t* weights, int16_t* rests, const float* masters, int64_t size);
void join_masters(float* masters, const uint16_t* weights, const int16_t* rests, int64_t size);

void widen(double* to, const float* from, int64_t size);

/// average = moved_towards(average, from, rest)
void move_towards(float* average, const float* from, int64_t size, float rest);
void move_towards(double* average, const double* from, int64_t size, double rest);

}  // namespace lockstep::amp
