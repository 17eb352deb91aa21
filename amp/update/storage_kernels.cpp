#include <lockstep/amp/moment_format.h>
#include <lockstep/amp/update/average_step.h>
#include <lockstep/amp/update/brain_rounding.h>
#include <lockstep/amp/update/eight_bit.h>
#include <lockstep/amp/update/storage_kernels.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/amp/update/storage_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef LOCKSTEP_AMP_STORAGE_LEVELS_
#define LOCKSTEP_AMP_STORAGE_LEVELS_
namespace lockstep::amp {

inline const EightBitTables eight_bit_tables = EightBitTables::of();

}  // namespace lockstep::amp
#endif

// Compiled once for each instruction set: the compiler vectorises the loops for it.
HWY_BEFORE_NAMESPACE();
namespace lockstep::amp {
namespace HWY_NAMESPACE {

void random_brains(uint16_t* HWY_RESTRICT to, const float* HWY_RESTRICT from, int64_t size,
                   RandomBits random, int64_t first) {
  for (int64_t i = 0; i < size; ++i) {
    to[i] = brain_randomly(from[i], random(static_cast<uint32_t>(first + i)));
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

/// One block of at most kMomentBlock elements; returns its scale.
template <bool kSquare>
HWY_INLINE float encode_block(const EightBitLevels& levels, uint8_t* HWY_RESTRICT codes,
                              const float* HWY_RESTRICT from, int64_t size, RandomBits random,
                              uint32_t first) {
  float magnitudes[kMomentBlock];
  uint32_t largest_bits = 0;  // of numbers that are not negative, bits compare as the numbers do
  for (int64_t i = 0; i < size; ++i) {
    magnitudes[i] = coded_magnitude<kSquare>(from[i]);
  }
  for (int64_t i = 0; i < size; ++i) {
    const uint32_t bits = bits_of(magnitudes[i]);
    largest_bits = bits > largest_bits ? bits : largest_bits;
  }
  const EightBitBlock block = EightBitBlock::of(levels, float_of(largest_bits));
  int32_t found[kMomentBlock];  // apart from `codes`, whose type may alias everything
  for (int64_t i = 0; i < size; ++i) {
    found[i] = eight_bit_code<kSquare>(levels, from[i], magnitudes[i], block.inverse,
                                       random(first + static_cast<uint32_t>(i)));
  }
  for (int64_t i = 0; i < size; ++i) {
    codes[i] = static_cast<uint8_t>(found[i]);
  }
  return block.scale;
}

template <bool kSquare>
void encode_all(uint8_t* codes, float* scales, const float* from, int64_t size, RandomBits random,
                int64_t first) {
  const EightBitLevels& levels = eight_bit_tables.of_moment(kSquare);
  for (int64_t i = 0; i < size; i += kMomentBlock) {
    const int64_t count = size - i < kMomentBlock ? size - i : kMomentBlock;
    scales[i / kMomentBlock] = encode_block<kSquare>(levels, codes + i, from + i, count, random,
                                                     static_cast<uint32_t>(first + i));
  }
}

template <bool kSquare>
void decode_all(float* HWY_RESTRICT to, const uint8_t* HWY_RESTRICT codes,
                const float* HWY_RESTRICT scales, int64_t size) {
  const float* HWY_RESTRICT level = eight_bit_tables.of_moment(kSquare).level;
  for (int64_t begin = 0; begin < size; begin += kMomentBlock) {
    const float scale = scales[begin / kMomentBlock];
    const int64_t end = size - begin < kMomentBlock ? size : begin + kMomentBlock;
    for (int64_t i = begin; i < end; ++i) {
      to[i] = eight_bit_value<kSquare>(level, codes[i], scale);
    }
  }
}

void encode_signs(uint8_t* codes, float* scales, const float* from, int64_t size, RandomBits random,
                  int64_t first) {
  encode_all<false>(codes, scales, from, size, random, first);
}
void encode_squares(uint8_t* codes, float* scales, const float* from, int64_t size,
                    RandomBits random, int64_t first) {
  encode_all<true>(codes, scales, from, size, random, first);
}
void decode_signs(float* to, const uint8_t* codes, const float* scales, int64_t size) {
  decode_all<false>(to, codes, scales, size);
}
void decode_squares(float* to, const uint8_t* codes, const float* scales, int64_t size) {
  decode_all<true>(to, codes, scales, size);
}

void average_all(float* HWY_RESTRICT average, const float* HWY_RESTRICT from, int64_t size,
                 float rest) {
  for (int64_t i = 0; i < size; ++i) {
    average[i] = moved_towards(average[i], from[i], rest);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::amp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::amp {

HWY_EXPORT(random_brains);
HWY_EXPORT(split_all);
HWY_EXPORT(join_all);
HWY_EXPORT(encode_signs);
HWY_EXPORT(encode_squares);
HWY_EXPORT(decode_signs);
HWY_EXPORT(decode_squares);
HWY_EXPORT(average_all);

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
void encode_signed(uint8_t* codes, float* scales, const float* from, int64_t size,
                   RandomBits random, int64_t first) {
  HWY_DYNAMIC_DISPATCH(encode_signs)(codes, scales, from, size, random, first);
}
void decode_signed(float* to, const uint8_t* codes, const float* scales, int64_t size) {
  HWY_DYNAMIC_DISPATCH(decode_signs)(to, codes, scales, size);
}
void encode_square(uint8_t* codes, float* scales, const float* from, int64_t size,
                   RandomBits random, int64_t first) {
  HWY_DYNAMIC_DISPATCH(encode_squares)(codes, scales, from, size, random, first);
}
void decode_square(float* to, const uint8_t* codes, const float* scales, int64_t size) {
  HWY_DYNAMIC_DISPATCH(decode_squares)(to, codes, scales, size);
}
void move_towards(float* average, const float* from, int64_t size, float rest) {
  HWY_DYNAMIC_DISPATCH(average_all)(average, from, size, rest);
}

}  // namespace lockstep::amp
#endif
