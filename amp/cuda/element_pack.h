#pragma once

#include <lockstep/amp/impl/host_device.h>
#include <lockstep/amp/impl/span_arrays.h>
#include <lockstep/amp/update/brain_rounding.h>
#include <lockstep/collectives/impl/half_bits.h>

#include <cstdint>
#include <type_traits>
#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

namespace lockstep::amp {

/// Reads and writes of flat arrays in device code: eight elements at a time as fp32, in accesses of
/// 16 bytes. Also compiled for hosts: tests run every kernel on an emulated device.
constexpr int kPack = 8;

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

/// Rounds to nearest even; NaN stays NaN.
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

/// One element.
LOCKSTEP_HOST_DEVICE float element_of(const Elements& array, int64_t index) {
  return array.type == Element::fp32
             ? static_cast<const float*>(array.data)[index]
             : widened(static_cast<const uint16_t*>(array.data)[index], array.type);
}

LOCKSTEP_HOST_DEVICE void set_element(const Elements& array, int64_t index, float value) {
  if (array.type == Element::fp32) {
    static_cast<float*>(array.data)[index] = value;
  } else {
    static_cast<uint16_t*>(array.data)[index] = narrowed_to(value, array.type);
  }
}

/// Eight adjacent elements: one access or two.
template <typename T>
struct alignas(kPack * sizeof(T) < 16 ? kPack * sizeof(T) : 16) Pack {
  T values[kPack];
};

/// Loads eight adjacent elements from a multiple of 16 bytes.
template <typename T>
LOCKSTEP_HOST_DEVICE void load_whole(const T* first, T (&values)[kPack]) {
  const Pack<T> whole = *reinterpret_cast<const Pack<T>*>(first);
  for (int k = 0; k < kPack; ++k) {
    values[k] = whole.values[k];
  }
}

template <typename T>
LOCKSTEP_HOST_DEVICE void store_whole(T* first, const T (&values)[kPack]) {
#ifdef __CUDA_ARCH__
  // Written out because the compiler may store element by element.
  constexpr int kWords = kPack * sizeof(T) / 4;
  uint32_t words[kWords] = {};
  for (int k = 0; k < kPack; ++k) {
    if constexpr (sizeof(T) == 4) {
      words[k] = bits_of(values[k]);
    } else {
      constexpr int kPerWord = 4 / sizeof(T);
      words[k / kPerWord] |= static_cast<uint32_t>(static_cast<std::make_unsigned_t<T>>(values[k]))
                             << (k % kPerWord * 8 * sizeof(T));
    }
  }
  if constexpr (kWords == 2) {
    __stwb(reinterpret_cast<uint2*>(first), make_uint2(words[0], words[1]));
  } else {
    for (int k = 0; k < kWords; k += 4) {
      __stwb(reinterpret_cast<uint4*>(first) + k / 4,
             make_uint4(words[k], words[k + 1], words[k + 2], words[k + 3]));
    }
  }
#else
  Pack<T> whole;
  for (int k = 0; k < kPack; ++k) {
    whole.values[k] = values[k];
  }
  *reinterpret_cast<Pack<T>*>(first) = whole;
#endif
}

/// Loads pack number `pack` of an array of `size` elements that begins at a multiple of 16 bytes; 0
/// beyond the end.
template <typename T>
LOCKSTEP_HOST_DEVICE void load_pack(const T* array, int64_t pack, int64_t size,
                                    T (&values)[kPack]) {
  const int64_t first = pack * kPack;
  if (first + kPack <= size) {
    load_whole(array + first, values);
  } else {
    for (int k = 0; k < kPack; ++k) {
      values[k] = first + k < size ? array[first + k] : T(0);
    }
  }
}

/// Stores a pack; nothing beyond the end.
template <typename T>
LOCKSTEP_HOST_DEVICE void store_pack(T* array, int64_t pack, int64_t size,
                                     const T (&values)[kPack]) {
  const int64_t first = pack * kPack;
  if (first + kPack <= size) {
    store_whole(array + first, values);
  } else {
    // A fixed number of iterations: a run-time index would move `values` from registers to memory.
    for (int k = 0; k < kPack; ++k) {
      if (first + k < size) {
        array[first + k] = values[k];
      }
    }
  }
}

/// Loads or stores eight elements from `first` on, at a multiple of 16 bytes, as fp32.
LOCKSTEP_HOST_DEVICE void load_whole(const Elements& array, int64_t first, float (&values)[kPack]) {
  if (array.type == Element::fp32) {
    load_whole(static_cast<const float*>(array.data) + first, values);
    return;
  }
  uint16_t bits[kPack];
  load_whole(static_cast<const uint16_t*>(array.data) + first, bits);
  for (int k = 0; k < kPack; ++k) {
    values[k] = widened(bits[k], array.type);
  }
}

LOCKSTEP_HOST_DEVICE void store_whole(const Elements& array, int64_t first,
                                      const float (&values)[kPack]) {
  if (array.type == Element::fp32) {
    store_whole(static_cast<float*>(array.data) + first, values);
    return;
  }
  uint16_t bits[kPack];
  for (int k = 0; k < kPack; ++k) {
    bits[k] = narrowed_to(values[k], array.type);
  }
  store_whole(static_cast<uint16_t*>(array.data) + first, bits);
}

/// Loads or stores pack number `pack` of a flat array as fp32; stores round to nearest even.
LOCKSTEP_HOST_DEVICE void load(const Elements& array, int64_t pack, int64_t size,
                               float (&values)[kPack]) {
  if (array.type == Element::fp32) {
    load_pack(static_cast<const float*>(array.data), pack, size, values);
    return;
  }
  uint16_t bits[kPack];
  load_pack(static_cast<const uint16_t*>(array.data), pack, size, bits);
  for (int k = 0; k < kPack; ++k) {
    values[k] = widened(bits[k], array.type);
  }
}

LOCKSTEP_HOST_DEVICE void store(const Elements& array, int64_t pack, int64_t size,
                                const float (&values)[kPack]) {
  if (array.type == Element::fp32) {
    store_pack(static_cast<float*>(array.data), pack, size, values);
    return;
  }
  uint16_t bits[kPack];
  for (int k = 0; k < kPack; ++k) {
    bits[k] = narrowed_to(values[k], array.type);
  }
  store_pack(static_cast<uint16_t*>(array.data), pack, size, bits);
}

LOCKSTEP_HOST_DEVICE int64_t packs_of(int64_t size) {
  return (size + kPack - 1) / kPack;
}

}  // namespace lockstep::amp
