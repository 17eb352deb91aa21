#include <lockstep/amp/impl/cast_kernels.h>
#include <lockstep/amp/impl/fixed_point.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/amp/update/fixed_point.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::amp {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::CappedTag<double, 8>;
using Whole = hn::RebindToSigned<Wide>;
using Narrow = hn::Rebind<float, Wide>;
constexpr int64_t kMostLanes = 8;

/// The limit is below 2^63 steps, and a float times a power of two is exact in fp64. A lane of
/// `misfits` becomes 1 if a term is not below the limit.
HWY_INLINE hn::VFromD<Whole> steps(const float* from, hn::VFromD<Wide> scale,
                                   hn::VFromD<Wide> limit, hn::VFromD<Wide>& misfits) {
  const Wide d;
  const auto value = hn::PromoteTo(d, hn::LoadU(Narrow(), from));
  const auto small = hn::Lt(hn::Abs(value), limit);  // false for NaN
  misfits = hn::Max(misfits, hn::IfThenZeroElse(small, hn::Set(d, 1.0)));
  return hn::ConvertTo(Whole(), hn::Round(hn::Mul(hn::IfThenElseZero(small, value), scale)));
}

bool add_steps(int64_t* sums, const float* terms, int64_t count, double scale, double limit,
               bool first) {
  const Wide d;
  const auto wide_scale = hn::Set(d, scale);
  const auto wide_limit = hn::Set(d, limit);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto misfits = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto more = steps(terms + i, wide_scale, wide_limit, misfits);
    hn::StoreU(first ? more : hn::Add(hn::LoadU(Whole(), sums + i), more), Whole(), sums + i);
  }
  if (i < count) {
    float padded[kMostLanes] = {};
    int64_t result[kMostLanes] = {};
    std::memcpy(padded, terms + i, static_cast<size_t>(count - i) * sizeof(float));
    hn::StoreU(steps(padded, wide_scale, wide_limit, misfits), Whole(), result);
    for (int64_t k = 0; i + k < count; ++k) {
      sums[i + k] = result[k] + (first ? 0 : sums[i + k]);
    }
  }
  return hn::AllTrue(d, hn::Eq(misfits, hn::Zero(d)));
}

void read_steps(float* to, const int64_t* sums, int64_t count, double factor) {
  const Wide d;
  const auto wide_factor = hn::Set(d, factor);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto value = [&](const int64_t* from) {
    const auto sum = hn::ConvertTo(d, hn::LoadU(Whole(), from));
    return hn::DemoteTo(Narrow(), hn::Mul(sum, wide_factor));
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(value(sums + i), Narrow(), to + i);
  }
  if (i < count) {
    int64_t padded[kMostLanes] = {};
    float result[kMostLanes] = {};
    std::memcpy(padded, sums + i, static_cast<size_t>(count - i) * sizeof(int64_t));
    hn::StoreU(value(padded), Narrow(), result);
    std::memcpy(to + i, result, static_cast<size_t>(count - i) * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::amp
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::amp {
namespace {

constexpr int kSumBits = 62;
constexpr int kLimitBits = 14;
static_assert(FixedPoint::kLimit == 1 << kLimitBits);
constexpr int64_t kBlock = 2048;  // elements

}  // namespace

HWY_EXPORT(add_steps);
HWY_EXPORT(read_steps);

FixedPoint FixedPoint::for_terms(int64_t terms) {
  int bits = 0;
  while ((int64_t{1} << bits) < terms) {
    ++bits;
  }
  return {kSumBits - kLimitBits - bits};
}

bool FixedPoint::add(const at::Tensor& sums, const at::Tensor& terms, bool first) const {
  const double scale = std::ldexp(1.0, fraction_bits);
  auto* to = sums.mutable_data_ptr<int64_t>();
  const int64_t count = terms.numel();
  if (terms.scalar_type() == at::kFloat) {
    return HWY_DYNAMIC_DISPATCH(add_steps)(to, terms.const_data_ptr<float>(), count, scale, kLimit,
                                           first);
  }
  const auto* from = static_cast<const char*>(terms.const_data_ptr());
  alignas(64) float block[kBlock];
  bool fits = true;
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t some = std::min(kBlock, count - i);
    kernels::cast_scaled(block, at::kFloat, from + i * static_cast<int64_t>(terms.element_size()),
                         terms.scalar_type(), some, 1.0);
    fits = HWY_DYNAMIC_DISPATCH(add_steps)(to + i, block, some, scale, kLimit, first) && fits;
  }
  return fits;
}

void FixedPoint::read(const at::Tensor& to, const at::Tensor& sums, double factor) const {
  const double all = std::ldexp(factor, -fraction_bits);
  const auto* from = sums.const_data_ptr<int64_t>();
  const int64_t count = to.numel();
  if (to.scalar_type() == at::kFloat) {
    HWY_DYNAMIC_DISPATCH(read_steps)(to.mutable_data_ptr<float>(), from, count, all);
    return;
  }
  auto* out = static_cast<char*>(to.mutable_data_ptr());
  alignas(64) float block[kBlock];
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t some = std::min(kBlock, count - i);
    HWY_DYNAMIC_DISPATCH(read_steps)(block, from + i, some, all);
    kernels::cast_scaled(out + i * static_cast<int64_t>(to.element_size()), to.scalar_type(), block,
                         at::kFloat, some, 1.0);
  }
}

}  // namespace lockstep::amp
#endif
