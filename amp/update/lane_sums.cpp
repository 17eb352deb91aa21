#include <lockstep/amp/update/lane_sums.h>

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/amp/update/lane_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::amp {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::CappedTag<double, 8>;
using Vector = hn::VFromD<Wide>;

HWY_INLINE Vector load_wide(const float* from) {
  return hn::PromoteTo(Wide(), hn::LoadU(hn::Rebind<float, Wide>(), from));
}
HWY_INLINE Vector load_wide(const double* from) {
  return hn::LoadU(Wide(), from);
}

template <typename T>
HWY_INLINE void add_rows(const T* values, int64_t size, LaneSums& sums) {
  int64_t i = 0;
#if HWY_HAVE_SCALABLE  // no arrays of such vectors: the compiler makes vectors of the loop
  double lanes[LaneSums::kLanes];
  std::copy_n(sums.lanes, LaneSums::kLanes, lanes);
  for (; i + LaneSums::kLanes <= size; i += LaneSums::kLanes) {
    for (int k = 0; k < LaneSums::kLanes; ++k) {
      const double x = values[i + k];
      lanes[k] += x * x;
    }
  }
  std::copy_n(lanes, LaneSums::kLanes, sums.lanes);
#else
  constexpr int kWidth = hn::MaxLanes(Wide());
  constexpr int kVectors = LaneSums::kLanes / kWidth;
  Vector lanes[kVectors];
  for (int k = 0; k < kVectors; ++k) {
    lanes[k] = hn::Load(Wide(), sums.lanes + k * kWidth);
  }
  for (; i + LaneSums::kLanes <= size; i += LaneSums::kLanes) {
    for (int k = 0; k < kVectors; ++k) {
      const Vector x = load_wide(values + i + k * kWidth);
      lanes[k] = hn::Add(lanes[k], hn::Mul(x, x));
    }
  }
  for (int k = 0; k < kVectors; ++k) {
    hn::Store(lanes[k], Wide(), sums.lanes + k * kWidth);
  }
#endif
  for (; i < size; ++i) {
    const double x = values[i];
    sums.lanes[i % LaneSums::kLanes] += x * x;
  }
}

void add_floats(const float* values, int64_t size, LaneSums& sums) {
  add_rows(values, size, sums);
}
void add_doubles(const double* values, int64_t size, LaneSums& sums) {
  add_rows(values, size, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::amp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::amp {

HWY_EXPORT(add_floats);
HWY_EXPORT(add_doubles);

void add_squares(const float* values, int64_t size, LaneSums& sums) {
  HWY_DYNAMIC_DISPATCH(add_floats)(values, size, sums);
}
void add_squares(const double* values, int64_t size, LaneSums& sums) {
  HWY_DYNAMIC_DISPATCH(add_doubles)(values, size, sums);
}

}  // namespace lockstep::amp
#endif
