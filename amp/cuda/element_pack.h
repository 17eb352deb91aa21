#pragma once

#include <lockstep/amp/brain_rounding.h>
#include <lockstep/amp/host_device.h>
#include <lockstep/collectives/half_bits.h>

#include <cstdint>
#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

namespace lockstep::amp {

/// How device code reads and writes flat arrays: eight elements at a time, in accesses of 16 bytes,
/// as fp32. Also host code, so that the arithmetic of every kernel is tested without a device.
constexpr int kPack = 8;

enum class Element : uint8_t { none, fp32, fp16, bf16 };

/// A flat array whose data begin at a multiple of 16 bytes.
struct Elements {
  void* data = nullptr;
  Element type = Element::none;
};

struct alignas(16) Sixteen {
  uint32_t words[4];
};

LOCKSTEP_HOST_DEVICE float half_as_float(uint16_t bits) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(bits));
#else
  return kernels::half_to_float(bits);
#endif
}

LOCKSTEP_HOST_DEVICE uint16_t float_as_half(float value) {
#ifdef __CUDA_ARCH__
  return __half_as_ushort(__float2half_rn(value));
#else
  return kernels::float_to_half(value);
#endif
}

/// To nearest even; NaN stays NaN.
LOCKSTEP_HOST_DEVICE uint16_t float_as_brain(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return static_cast<uint16_t>((bits >> 16U) | 0x40U);
  }
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

LOCKSTEP_HOST_DEVICE float widened(uint16_t bits, Element type) {
  return type == Element::fp16 ? half_as_float(bits) : float_of(static_cast<uint32_t>(bits) << 16U);
}

LOCKSTEP_HOST_DEVICE uint16_t narrowed_to(float value, Element type) {
  return type == Element::fp16 ? float_as_half(value) : float_as_brain(value);
}

/// values = array[first, first + 8).
LOCKSTEP_HOST_DEVICE void load_pack(const Elements& array, int64_t first, float (&values)[kPack]) {
  if (array.type == Element::fp32) {
    const auto* from =
        reinterpret_cast<const Sixteen*>(static_cast<const float*>(array.data) + first);
    const Sixteen halves[2] = {from[0], from[1]};
    for (int k = 0; k < kPack; ++k) {
      values[k] = float_of(halves[k / 4].words[k % 4]);
    }
    return;
  }
  const Sixteen all =
      *reinterpret_cast<const Sixteen*>(static_cast<const uint16_t*>(array.data) + first);
  for (int k = 0; k < kPack; ++k) {
    values[k] = widened(static_cast<uint16_t>(all.words[k / 2] >> (k % 2 * 16)), array.type);
  }
}

/// array[first, first + 8) = values, rounded to nearest even.
LOCKSTEP_HOST_DEVICE void store_pack(const Elements& array, int64_t first,
                                     const float (&values)[kPack]) {
  if (array.type == Element::fp32) {
    auto* to = reinterpret_cast<Sixteen*>(static_cast<float*>(array.data) + first);
    for (int half = 0; half < 2; ++half) {
      Sixteen part;
      for (int k = 0; k < 4; ++k) {
        part.words[k] = bits_of(values[half * 4 + k]);
      }
      to[half] = part;
    }
    return;
  }
  Sixteen all;
  for (int k = 0; k < 4; ++k) {
    all.words[k] = narrowed_to(values[2 * k], array.type) |
                   static_cast<uint32_t>(narrowed_to(values[2 * k + 1], array.type)) << 16U;
  }
  *reinterpret_cast<Sixteen*>(static_cast<uint16_t*>(array.data) + first) = all;
}

/// The same for the last `count` < 8 elements of an array; the rest of `values` becomes 0.
LOCKSTEP_HOST_DEVICE void load_some(const Elements& array, int64_t first, int count,
                                    float (&values)[kPack]) {
  for (int k = 0; k < kPack; ++k) {
    values[k] = k >= count ? 0.0F
                : array.type == Element::fp32
                    ? static_cast<const float*>(array.data)[first + k]
                    : widened(static_cast<const uint16_t*>(array.data)[first + k], array.type);
  }
}

LOCKSTEP_HOST_DEVICE void store_some(const Elements& array, int64_t first, int count,
                                     const float (&values)[kPack]) {
  for (int k = 0; k < count; ++k) {
    if (array.type == Element::fp32) {
      static_cast<float*>(array.data)[first + k] = values[k];
    } else {
      static_cast<uint16_t*>(array.data)[first + k] = narrowed_to(values[k], array.type);
    }
  }
}

/// Pack number `pack` of an array of `size` elements, whole or in part.
LOCKSTEP_HOST_DEVICE void load(const Elements& array, int64_t pack, int64_t size,
                               float (&values)[kPack]) {
  const int64_t first = pack * kPack;
  if (first + kPack <= size) {
    load_pack(array, first, values);
  } else {
    load_some(array, first, static_cast<int>(size - first), values);
  }
}

LOCKSTEP_HOST_DEVICE void store(const Elements& array, int64_t pack, int64_t size,
                                const float (&values)[kPack]) {
  const int64_t first = pack * kPack;
  if (first + kPack <= size) {
    store_pack(array, first, values);
  } else {
    store_some(array, first, static_cast<int>(size - first), values);
  }
}

LOCKSTEP_HOST_DEVICE int64_t packs_of(int64_t size) {
  return (size + kPack - 1) / kPack;
}

}  // namespace lockstep::amp
