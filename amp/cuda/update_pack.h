#pragma once

#include <lockstep/amp/cuda/element_pack.h>
#include <lockstep/amp/moment_format.h>
#include <lockstep/amp/step_state.h>
#include <lockstep/amp/update/average_step.h>
#include <lockstep/amp/update/eight_bit.h>
#include <lockstep/amp/update/random_bits.h>

namespace lockstep::amp {

/// What one thread does to one pack of a span. A kernel does it for all packs, in no order.

struct MomentArray {
  void* data = nullptr;
  float* scales = nullptr;  // of int8 codes
  MomentFormat format = MomentFormat::fp32;
};

/// The arrays of a FlatSpan, as device code takes them.
struct UpdateArrays {
  Elements gradient;
  Elements updated;  // the master, or the weight where there is none
  Elements copy;     // the model's weight beside a master, or none
  MomentArray moments[2];
  int16_t* remainder = nullptr;  // beside `updated` in bf16
  float* average = nullptr;
  float average_rest = 0.0F;
  bool rounds_randomly = false;
  uint64_t stream = 0;
  int64_t first_element = 0;
  int64_t size = 0;
  const double* learning_rate = nullptr;  // one, or the rule's
  const int64_t* missed = nullptr;        // one, or none

  LOCKSTEP_HOST_DEVICE StepState step(const StepState& all) const {
    return own_step(all, learning_rate, missed);
  }

  /// Anything but fp32 moments and weights rounded to nearest.
  bool narrow() const {
    return remainder != nullptr || average != nullptr || rounds_randomly ||
           moments[0].format != MomentFormat::fp32 || moments[1].format != MomentFormat::fp32;
  }
};

/// Packs that share the scale of an int8 moment: neighbouring threads of a kernel.
constexpr int kScalePacks = static_cast<int>(kMomentBlock) / kPack;
LOCKSTEP_HOST_DEVICE int64_t scale_groups_of(int64_t size) {
  return (size + kMomentBlock - 1) / kMomentBlock;
}

/// A pack between reading and writing.
struct PackValues {
  float weight[kPack];
  float gradient[kPack];
  float moments[2][kPack];
};

/// The functor on each element; weight becomes what it returns.
template <typename Update, typename Prepared>
LOCKSTEP_HOST_DEVICE void compute_pack(const Prepared& update, PackValues& values) {
  for (int k = 0; k < kPack; ++k) {
    if constexpr (Update::kMoments == 2) {
      values.weight[k] =
          update(values.weight[k], values.gradient[k], values.moments[0][k], values.moments[1][k]);
    } else if constexpr (Update::kMoments == 1) {
      values.weight[k] = update(values.weight[k], values.gradient[k], values.moments[0][k]);
    } else {
      values.weight[k] = update(values.weight[k], values.gradient[k]);
    }
  }
}

/// A whole update for arrays that are not narrow().
template <typename Update>
LOCKSTEP_HOST_DEVICE void update_pack(const typename Update::Prepared& update,
                                      const UpdateArrays& arrays, int64_t pack) {
  PackValues values;
  load(arrays.updated, pack, arrays.size, values.weight);
  load(arrays.gradient, pack, arrays.size, values.gradient);
  for (int m = 0; m < Update::kMoments; ++m) {
    load_pack(static_cast<const float*>(arrays.moments[m].data), pack, arrays.size,
              values.moments[m]);
  }
  compute_pack<Update>(update, values);
  store(arrays.updated, pack, arrays.size, values.weight);
  for (int m = 0; m < Update::kMoments; ++m) {
    store_pack(static_cast<float*>(arrays.moments[m].data), pack, arrays.size, values.moments[m]);
  }
  if (arrays.copy.type != Element::none) {
    store(arrays.copy, pack, arrays.size, values.weight);
  }
}

/// Of arrays in any form.
LOCKSTEP_HOST_DEVICE void load_weight(const UpdateArrays& arrays, int64_t pack,
                                      float (&weight)[kPack]) {
  if (arrays.remainder == nullptr) {
    load(arrays.updated, pack, arrays.size, weight);
    return;
  }
  uint16_t brains[kPack];
  int16_t rests[kPack];
  load_pack(static_cast<const uint16_t*>(arrays.updated.data), pack, arrays.size, brains);
  load_pack(arrays.remainder, pack, arrays.size, rests);
  for (int k = 0; k < kPack; ++k) {
    weight[k] = join_master(brains[k], rests[k]);
  }
}

/// Random bf16 roundings of elements, of which the span's first has number `first_element`.
LOCKSTEP_HOST_DEVICE void store_randomly(void* array, int64_t pack, int64_t size,
                                         const float (&values)[kPack], const RandomBits& random,
                                         int64_t first_element) {
  uint16_t brains[kPack];
  for (int k = 0; k < kPack; ++k) {
    brains[k] =
        brain_randomly(values[k], random(static_cast<uint32_t>(first_element + pack * kPack + k)));
  }
  store_pack(static_cast<uint16_t*>(array), pack, size, brains);
}

LOCKSTEP_HOST_DEVICE void move_average_pack(const UpdateArrays& arrays, int64_t pack,
                                            const float (&weight)[kPack]) {
  float average[kPack];
  load_pack(arrays.average, pack, arrays.size, average);
  for (int k = 0; k < kPack; ++k) {
    average[k] = moved_towards(average[k], weight[k], arrays.average_rest);
  }
  store_pack(arrays.average, pack, arrays.size, average);
}

/// Writes the updated weight in its form, its copy and its average.
LOCKSTEP_HOST_DEVICE void store_weight(const UpdateArrays& arrays, int64_t pack,
                                       const float (&weight)[kPack], const RandomBits& random) {
  if (arrays.remainder != nullptr) {
    uint16_t brains[kPack];
    int16_t rests[kPack];
    for (int k = 0; k < kPack; ++k) {
      const BrainAndRest parts = split_master(weight[k]);
      brains[k] = parts.brain;
      rests[k] = parts.rest;
    }
    store_pack(static_cast<uint16_t*>(arrays.updated.data), pack, arrays.size, brains);
    store_pack(arrays.remainder, pack, arrays.size, rests);
  } else if (arrays.rounds_randomly) {
    store_randomly(arrays.updated.data, pack, arrays.size, weight, random, arrays.first_element);
  } else {
    store(arrays.updated, pack, arrays.size, weight);
  }
  if (arrays.copy.type != Element::none) {
    store(arrays.copy, pack, arrays.size, weight);
  }
  if (arrays.average != nullptr) {
    move_average_pack(arrays, pack, weight);
  }
}

template <bool kSquare>
LOCKSTEP_HOST_DEVICE void load_moment(const MomentArray& moment, const EightBitTables& tables,
                                      int64_t pack, int64_t size, float (&values)[kPack]) {
  if (moment.format != MomentFormat::int8) {
    load({moment.data, moment.format == MomentFormat::fp32 ? Element::fp32 : Element::bf16}, pack,
         size, values);
    return;
  }
  uint8_t codes[kPack];
  load_pack(static_cast<const uint8_t*>(moment.data), pack, size, codes);
  const float scale = pack * kPack < size ? moment.scales[pack / kScalePacks] : 0.0F;
  const float* level = tables.of_moment(kSquare).level;
  for (int k = 0; k < kPack; ++k) {
    values[k] = eight_bit_value<kSquare>(level, codes[k], scale);
  }
}

/// The bits of the largest magnitude that an int8 moment of these values would code: bits of
/// numbers that are not negative compare as the numbers do.
template <bool kSquare>
LOCKSTEP_HOST_DEVICE uint32_t largest_bits(const float (&values)[kPack]) {
  uint32_t largest = 0;
  for (int k = 0; k < kPack; ++k) {
    const uint32_t bits = bits_of(coded_magnitude<kSquare>(values[k]));
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

/// `largest`: largest_bits() of the kScalePacks packs with the same scale.
template <bool kSquare>
LOCKSTEP_HOST_DEVICE void store_moment(const MomentArray& moment, const EightBitTables& tables,
                                       const UpdateArrays& arrays, int64_t pack,
                                       const float (&values)[kPack], const RandomBits& random,
                                       uint32_t largest) {
  const int64_t size = arrays.size;
  if (moment.format == MomentFormat::fp32) {
    store_pack(static_cast<float*>(moment.data), pack, size, values);
  } else if (moment.format == MomentFormat::bf16) {
    store_randomly(moment.data, pack, size, values, random, arrays.first_element);
  } else if (pack * kPack < size) {
    const EightBitLevels& levels = tables.of_moment(kSquare);
    const EightBitBlock block = EightBitBlock::of(levels, float_of(largest));
    const int64_t first = arrays.first_element + pack * kPack;
    uint8_t codes[kPack];
    for (int k = 0; k < kPack; ++k) {
      codes[k] = static_cast<uint8_t>(
          eight_bit_code<kSquare>(levels, values[k], coded_magnitude<kSquare>(values[k]),
                                  block.inverse, random(static_cast<uint32_t>(first + k))));
    }
    store_pack(static_cast<uint8_t*>(moment.data), pack, size, codes);
    if (pack % kScalePacks == 0) {
      moment.scales[pack / kScalePacks] = block.scale;
    }
  }
}

/// The largest_bits() of each moment.
struct LargestBits {
  uint32_t of[2] = {0, 0};
};

/// A whole update for arrays in any form, in three parts: between the second and the third, the
/// kScalePacks threads of one scale exchange their LargestBits and take the larger ones.
template <typename Update>
struct NarrowUpdate {
  static constexpr int kMoments = Update::kMoments;
  const UpdateArrays& arrays;
  const EightBitTables& tables;

  LOCKSTEP_HOST_DEVICE void load(int64_t pack, PackValues& values) const {
    load_weight(arrays, pack, values.weight);
    amp::load(arrays.gradient, pack, arrays.size, values.gradient);
    if constexpr (kMoments > 0) {
      load_moment<false>(arrays.moments[0], tables, pack, arrays.size, values.moments[0]);
    }
    if constexpr (kMoments > 1) {
      load_moment<Update::kSecondMoment>(arrays.moments[1], tables, pack, arrays.size,
                                         values.moments[1]);
    }
  }

  LOCKSTEP_HOST_DEVICE LargestBits largest(const PackValues& values) const {
    LargestBits bits;
    if constexpr (kMoments > 0) {
      bits.of[0] = largest_bits<false>(values.moments[0]);
    }
    if constexpr (kMoments > 1) {
      bits.of[1] = largest_bits<Update::kSecondMoment>(values.moments[1]);
    }
    return bits;
  }

  LOCKSTEP_HOST_DEVICE void store_moments(int64_t pack, const PackValues& values,
                                          const SpanRandom& random, const LargestBits& bits) const {
    if constexpr (kMoments > 0) {
      store_moment<false>(arrays.moments[0], tables, arrays, pack, values.moments[0],
                          random.moments[0], bits.of[0]);
    }
    if constexpr (kMoments > 1) {
      store_moment<Update::kSecondMoment>(arrays.moments[1], tables, arrays, pack,
                                          values.moments[1], random.moments[1], bits.of[1]);
    }
  }

  LOCKSTEP_HOST_DEVICE void store(int64_t pack, const PackValues& values, const SpanRandom& random,
                                  const LargestBits& bits) const {
    store_weight(arrays, pack, values.weight, random.weight);
    store_moments(pack, values, random, bits);
  }
};

}  // namespace lockstep::amp
