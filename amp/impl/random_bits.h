#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/impl/host_device.h>

#include <cstdint>

namespace lockstep::amp {

/// Random bits as a function of (stream, update, element): the same on every rank and in a resumed
/// run, without state to save. A draw is two rounds of a 32-bit finaliser, with a key before and
/// between them; it has 16 bits for each of two adjacent elements.
struct RandomBits {
  uint32_t before = 0;
  uint32_t between = 0;

  /// `stream`: number of the array. `update`: number of the update.
  LOCKSTEP_HOST_DEVICE static RandomBits of(uint64_t stream, int64_t update) {
    const uint64_t key = scrambled(scrambled(stream) + static_cast<uint64_t>(update));
    return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32U)};
  }

  /// Draw number `draw` of the array, modulo 2^32: the low half is for element 2 * draw, the high
  /// half for the one after it.
  LOCKSTEP_HOST_DEVICE uint32_t operator()(uint32_t draw) const {
    return mixed(mixed(draw + before) ^ between);
  }

 private:
  LOCKSTEP_HOST_DEVICE static uint32_t mixed(uint32_t x) {
    x ^= x >> 16U;
    x *= 0x7feb352dU;
    x ^= x >> 15U;
    x *= 0x846ca68bU;
    return x ^ (x >> 16U);
  }
  /// splitmix64
  LOCKSTEP_HOST_DEVICE static uint64_t scrambled(uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }
};

/// The random bits of one update of a span: streams 4 * FlatSpan::stream + 0, 1 and 2.
struct SpanRandom {
  RandomBits weight;
  RandomBits moments[2];

  LOCKSTEP_HOST_DEVICE static SpanRandom of(uint64_t stream, int64_t update) {
    return {RandomBits::of(4 * stream, update),
            {RandomBits::of(4 * stream + 1, update), RandomBits::of(4 * stream + 2, update)}};
  }
};

}  // namespace lockstep::amp
