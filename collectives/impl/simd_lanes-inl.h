// Loads and stores vectors of any element type, converted to the type of the computation. Kernels
// with Highway's run-time dispatch include this file once for each SIMD target.
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#if defined(LOCKSTEP_COLLECTIVES_SIMD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_COLLECTIVES_SIMD_LANES_INL_H_
#undef LOCKSTEP_COLLECTIVES_SIMD_LANES_INL_H_
#else
#define LOCKSTEP_COLLECTIVES_SIMD_LANES_INL_H_
#endif

#include <hwy/highway.h>
#include <lockstep/collectives/impl/half_bits.h>

#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
constexpr bool kIs16BitFloat = std::is_same_v<T, HalfBits> || std::is_same_v<T, BrainBits>;

/// 16-bit floats are computed in float, everything else in its own type.
template <class T>
using Compute = std::conditional_t<kIs16BitFloat<T>, float, T>;

#if HWY_ARCH_X86
constexpr bool kConvertsHalf = HWY_TARGET <= HWY_AVX2;
#else
constexpr bool kConvertsHalf = HWY_ARCH_ARM_A64 != 0;
#endif

template <class D, class T>
HWY_INLINE hn::Vec<D> LoadLanes(D d, const T* from) {
  if constexpr (std::is_same_v<T, HalfBits>) {
    if constexpr (kConvertsHalf) {
      const hn::Rebind<hwy::float16_t, D> d16;
      return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
    } else {
      HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
      for (size_t i = 0; i < hn::Lanes(d); ++i) {
        values[i] = half_to_float(from[i].bits);
      }
      return hn::Load(d, values);
    }
  } else if constexpr (std::is_same_v<T, BrainBits>) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
  } else {
    return hn::LoadU(d, from);
  }
}

/// Rounds to nearest even. NaN stays NaN.
template <class D, class T>
HWY_INLINE void StoreLanes(hn::Vec<D> value, D d, T* to) {
  if constexpr (std::is_same_v<T, HalfBits>) {
    if constexpr (kConvertsHalf) {
      const hn::Rebind<hwy::float16_t, D> d16;
      hn::StoreU(hn::DemoteTo(d16, value), d16, reinterpret_cast<hwy::float16_t*>(to));
    } else {
      HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
      hn::Store(value, d, values);
      for (size_t i = 0; i < hn::Lanes(d); ++i) {
        to[i].bits = float_to_half(values[i]);
      }
    }
  } else if constexpr (std::is_same_v<T, BrainBits>) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    const hn::RebindToSigned<D> di32;
    const auto bits = hn::BitCast(d32, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu)));
    const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000u));
    const auto is_nan = hn::RebindMask(d32, hn::IsNaN(value));
    const auto high = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, high)), d16, reinterpret_cast<uint16_t*>(to));
  } else {
    hn::StoreU(value, d, to);
  }
}

}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
