#pragma once

#include <lockstep/amp/host_device.h>
#include <lockstep/amp/update/brain_rounding.h>
#include <lockstep/collectives/kernels/half_bits.h>

#include <cstdint>
#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

namespace lockstep::amp {

/// How device code reads and writes flat arrays: eight elements at a time, in accesses of 16 bytes,
/// as fp32. Also host code: the tests run every kernel on an emulated device.
constexpr int kPack = 8;

enum class Element : uint8_t { none, fp32, fp16, bf16 };

/// A flat array whose data begin at a multiple of 16 bytes.
struct Elements {
  void* data = nullptr;
  Element type = Element::none;
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

/// Eight neighbours, as wide as one access or two.
template <typename T>
struct alignas(kPack * sizeof(T) < 16 ? kPack * sizeof(T) : 16) Pack {
  T values[kPack];
};

/// Pack number `pack` of an array of `size` elements, which begins at a multiple of 16 bytes;
/// beyond its end `values` becomes 0.
template <typename T>
LOCKSTEP_HOST_DEVICE void load_pack(const T* array, int64_t pack, int64_t size,
                                    T (&values)[kPack]) {
  const int64_t first = pack * kPack;
  if (first + kPack <= size) {
    const Pack<T> whole = *reinterpret_cast<const Pack<T>*>(array + first);
    for (int k = 0; k < kPack; ++k) {
      values[k] = whole.values[k];
    }
  } else {
    for (int k = 0; k < kPack; ++k) {
      values[k] = first + k < size ? array[first + k] : T(0);
    }
  }
}

/// Writes nothing beyond the end.
template <typename T>
LOCKSTEP_HOST_DEVICE void store_pack(T* array, int64_t pack, int64_t size,
                                     const T (&values)[kPack]) {
  const int64_t first = pack * kPack;
  if (first + kPack <= size) {
    Pack<T> whole;
    for (int k = 0; k < kPack; ++k) {
      whole.values[k] = values[k];
    }
    *reinterpret_cast<Pack<T>*>(array + first) = whole;
  } else {
    // A fixed number of rounds: a run-time index would put `values` into memory.
    for (int k = 0; k < kPack; ++k) {
      if (first + k < size) {
        array[first + k] = values[k];
      }
    }
  }
}

/// The same for a flat array, as fp32; stored values are rounded to nearest even.
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
