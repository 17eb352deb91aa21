#include <lockstep/amp/impl/cast_kernels.h>
#include <lockstep/collectives/check.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/amp/casting/cast_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <lockstep/collectives/impl/simd_lanes-inl.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {

/// Calls step(offset) for each whole vector, and once on padded copies for the tail.
template <class In, class Out, class Step>
HWY_INLINE void ForEachVector(Out* out, const In* in, int64_t n, int64_t lanes, Step step) {
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    step(out + i, in + i);
  }
  if (i < n) {
    In padded_in[HWY_MAX_BYTES / sizeof(float)] = {};
    Out padded_out[HWY_MAX_BYTES / sizeof(float)] = {};
    std::memcpy(padded_in, in + i, static_cast<size_t>(n - i) * sizeof(In));
    std::memcpy(padded_out, out + i, static_cast<size_t>(n - i) * sizeof(Out));
    step(padded_out, padded_in);
    std::memcpy(out + i, padded_out, static_cast<size_t>(n - i) * sizeof(Out));
  }
}

template <class In, class Out>
void CastScaled(void* out, const void* in, int64_t n, double factor) {
  using C = Compute<In>;
  const hn::ScalableTag<C> d;
  const auto f = hn::Set(d, static_cast<C>(factor));
  ForEachVector(
      static_cast<Out*>(out), static_cast<const In*>(in), n, static_cast<int64_t>(hn::Lanes(d)),
      [&](Out* to, const In* from) { StoreLanes(hn::Mul(LoadLanes(d, from), f), d, to); });
}

template <class In>
void Accumulate(float* sum, const void* in, int64_t n) {
  const hn::ScalableTag<float> d;
  ForEachVector(sum, static_cast<const In*>(in), n, static_cast<int64_t>(hn::Lanes(d)),
                [&](float* to, const In* from) {
                  StoreLanes(hn::Add(hn::LoadU(d, to), LoadLanes(d, from)), d, to);
                });
}

template <class In>
bool CastFrom(void* out, c10::ScalarType out_type, const void* in, int64_t n, double factor) {
  switch (out_type) {
    case c10::ScalarType::Float:
      CastScaled<In, float>(out, in, n, factor);
      return true;
    case c10::ScalarType::Half:
      CastScaled<In, HalfBits>(out, in, n, factor);
      return true;
    case c10::ScalarType::BFloat16:
      CastScaled<In, BrainBits>(out, in, n, factor);
      return true;
    default:
      return false;
  }
}

bool CastAny(void* out, c10::ScalarType out_type, const void* in, c10::ScalarType in_type,
             int64_t n, double factor) {
  switch (in_type) {
    case c10::ScalarType::Float:
      return CastFrom<float>(out, out_type, in, n, factor);
    case c10::ScalarType::Half:
      return CastFrom<HalfBits>(out, out_type, in, n, factor);
    case c10::ScalarType::BFloat16:
      return CastFrom<BrainBits>(out, out_type, in, n, factor);
    case c10::ScalarType::Double:
      if (out_type == c10::ScalarType::Double) {
        CastScaled<double, double>(out, in, n, factor);
        return true;
      }
      return false;
    default:
      return false;
  }
}

bool AccumulateAny(float* sum, const void* in, c10::ScalarType in_type, int64_t n) {
  switch (in_type) {
    case c10::ScalarType::Float:
      Accumulate<float>(sum, in, n);
      return true;
    case c10::ScalarType::Half:
      Accumulate<HalfBits>(sum, in, n);
      return true;
    case c10::ScalarType::BFloat16:
      Accumulate<BrainBits>(sum, in, n);
      return true;
    default:
      return false;
  }
}

}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {

HWY_EXPORT(CastAny);
HWY_EXPORT(AccumulateAny);

void cast_scaled(void* out, c10::ScalarType out_type, const void* in, c10::ScalarType in_type,
                 int64_t n, double factor) {
  LOCKSTEP_CHECK(HWY_DYNAMIC_DISPATCH(CastAny)(out, out_type, in, in_type, n, factor),
                 "cast_scaled from ", in_type, " to ", out_type,
                 "; known are all pairs of Float, Half and BFloat16, and Double to Double");
}

void accumulate(float* sum, const void* in, c10::ScalarType in_type, int64_t n) {
  LOCKSTEP_CHECK(HWY_DYNAMIC_DISPATCH(AccumulateAny)(sum, in, in_type, n), "accumulate from ",
                 in_type, "; known are Float, Half and BFloat16");
}

}  // namespace lockstep::kernels
#endif
