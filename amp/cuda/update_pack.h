#pragma once

#include <lockstep/amp/cuda/element_pack.h>
#include <lockstep/amp/impl/arithmetic.h>
#include <lockstep/amp/impl/random_bits.h>

namespace lockstep::amp {

/// One thread's work on one pack of a span. A kernel does it for all packs, in any order.

/// The coefficients of an update of one span.
template <typename Update>
using Coefficients = typename Update::template Prepared<float>;

/// The values of a pack between load and store.
struct PackValues {
  float weight[kPack];
  float gradient[kPack];
  float moments[2][kPack];
};

/// Applies the functor to each element; its result is the new weight.
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
LOCKSTEP_HOST_DEVICE void update_pack(const Coefficients<Update>& update,
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

/// Loads the weight from arrays of any form.
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

/// Stores values as bf16 with random rounding. `first_element`: number of the span's first element.
LOCKSTEP_HOST_DEVICE void store_randomly(void* array, int64_t pack, int64_t size,
                                         const float (&values)[kPack], const RandomBits& random,
                                         int64_t first_element) {
  uint16_t brains[kPack];
  const int64_t first_draw = (first_element + pack * kPack) / 2;
  for (int k = 0; k < kPack; k += 2) {
    const uint32_t draw = random(static_cast<uint32_t>(first_draw + k / 2));
    brains[k] = brain_randomly(values[k], draw);
    brains[k + 1] = brain_randomly(values[k + 1], draw >> 16U);
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

/// Stores the updated weight, its copy and its average.
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

/// Loads the pack from arrays of any form.
template <typename Update>
LOCKSTEP_HOST_DEVICE void load_values(const UpdateArrays& arrays, int64_t pack,
                                      PackValues& values) {
  load_weight(arrays, pack, values.weight);
  load(arrays.gradient, pack, arrays.size, values.gradient);
  for (int m = 0; m < Update::kMoments; ++m) {
    const Elements& moment = arrays.moments[m];  // never fp16
    load({moment.data, moment.type == Element::fp32 ? Element::fp32 : Element::bf16}, pack,
         arrays.size, values.moments[m]);
  }
}

template <typename Update>
LOCKSTEP_HOST_DEVICE void store_moments(const UpdateArrays& arrays, int64_t pack,
                                        const PackValues& values, const SpanRandom& random) {
  for (int m = 0; m < Update::kMoments; ++m) {
    const Elements& moment = arrays.moments[m];
    if (moment.type == Element::fp32) {
      store_pack(static_cast<float*>(moment.data), pack, arrays.size, values.moments[m]);
    } else {
      store_randomly(moment.data, pack, arrays.size, values.moments[m], random.moments[m],
                     arrays.first_element);
    }
  }
}

/// A whole update for arrays in any form.
template <typename Update>
LOCKSTEP_HOST_DEVICE void update_narrow_pack(const Coefficients<Update>& update,
                                             const UpdateArrays& arrays, const SpanRandom& random,
                                             int64_t pack) {
  PackValues values;
  load_values<Update>(arrays, pack, values);
  compute_pack<Update>(update, values);
  store_weight(arrays, pack, values.weight, random.weight);
  store_moments<Update>(arrays, pack, values, random);
}

}  // namespace lockstep::amp
