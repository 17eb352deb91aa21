#include <lockstep/collectives/check.h>
#include <lockstep/collectives/kernels/reduce_kernels.h>

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/collectives/kernels/reduce_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <lockstep/collectives/impl/simd_lanes-inl.h>

#ifndef LOCKSTEP_COLLECTIVES_REDUCE_SPANS_
#define LOCKSTEP_COLLECTIVES_REDUCE_SPANS_
namespace lockstep::kernels {

struct Spans {
  const void* const* sources;
  int source_count;
  void* const* destinations;
  int destination_count;
  int64_t n;
};

}  // namespace lockstep::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::HWY_NAMESPACE {

template <bool kMin>
struct ExtremeOf {
  template <class D>
  HWY_INLINE hn::Vec<D> first(D, hn::Vec<D> value) const {
    return value;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> combine(D, hn::Vec<D> sum, hn::Vec<D> value) const {
    const auto extreme = kMin ? hn::Min(sum, value) : hn::Max(sum, value);
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      const auto or_value = hn::IfThenElse(hn::IsNaN(value), value, extreme);
      return hn::IfThenElse(hn::IsNaN(sum), sum, or_value);
    } else {
      return extreme;
    }
  }
  template <class D>
  HWY_INLINE hn::Vec<D> last(D, hn::Vec<D> value) const {
    return value;
  }
};

struct SumOf {
  template <class D>
  HWY_INLINE hn::Vec<D> first(D, hn::Vec<D> value) const {
    return value;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> combine(D, hn::Vec<D> sum, hn::Vec<D> value) const {
    return hn::Add(sum, value);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> last(D, hn::Vec<D> value) const {
    return value;
  }
};

/// Multiplies by the reciprocal where that is exact, since division is slow.
template <bool kDivide>
struct ScaledSumOf {
  double before;
  double after;

  template <class D>
  HWY_INLINE hn::Vec<D> first(D d, hn::Vec<D> value) const {
    return hn::Mul(value, hn::Set(d, static_cast<hn::TFromD<D>>(before)));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> combine(D d, hn::Vec<D> sum, hn::Vec<D> value) const {
    return hn::Add(sum, first(d, value));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> last(D d, hn::Vec<D> value) const {
    const auto factor = hn::Set(d, static_cast<hn::TFromD<D>>(after));
    return kDivide ? hn::Div(value, factor) : hn::Mul(value, factor);
  }
};

/// `vectors` neighbouring vectors at offset i: enough independent sums to hide the latency.
template <int kVectors, class In, class Out, class D, class Op>
HWY_INLINE void ReduceAt(D d, const Op& op, const Spans& spans, int64_t i) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const In* source = static_cast<const In*>(spans.sources[0]) + i;
  auto a = op.first(d, LoadLanes(d, source));
  auto b = a;
  auto c = a;
  auto e = a;
  if constexpr (kVectors == 4) {
    b = op.first(d, LoadLanes(d, source + lanes));
    c = op.first(d, LoadLanes(d, source + 2 * lanes));
    e = op.first(d, LoadLanes(d, source + 3 * lanes));
  }
  for (int k = 1; k < spans.source_count; ++k) {
    source = static_cast<const In*>(spans.sources[k]) + i;
    a = op.combine(d, a, LoadLanes(d, source));
    if constexpr (kVectors == 4) {
      b = op.combine(d, b, LoadLanes(d, source + lanes));
      c = op.combine(d, c, LoadLanes(d, source + 2 * lanes));
      e = op.combine(d, e, LoadLanes(d, source + 3 * lanes));
    }
  }
  a = op.last(d, a);
  if constexpr (kVectors == 4) {
    b = op.last(d, b);
    c = op.last(d, c);
    e = op.last(d, e);
  }
  for (int k = 0; k < spans.destination_count; ++k) {
    Out* destination = static_cast<Out*>(spans.destinations[k]) + i;
    StoreLanes(a, d, destination);
    if constexpr (kVectors == 4) {
      StoreLanes(b, d, destination + lanes);
      StoreLanes(c, d, destination + 2 * lanes);
      StoreLanes(e, d, destination + 3 * lanes);
    }
  }
}

/// The elements that do not fill a vector, in padded copies, one element type wide.
template <class In, class Out, class D, class Op>
void ReduceTail(D d, const Op& op, const Spans& spans, int64_t i) {
  using C = hn::TFromD<D>;
  constexpr size_t kLanes = HWY_MAX_BYTES / sizeof(C);
  const size_t rest = static_cast<size_t>(spans.n - i);
  In padded[kLanes] = {};
  std::memcpy(padded, static_cast<const In*>(spans.sources[0]) + i, rest * sizeof(In));
  auto sum = op.first(d, LoadLanes(d, padded));
  for (int k = 1; k < spans.source_count; ++k) {
    std::memcpy(padded, static_cast<const In*>(spans.sources[k]) + i, rest * sizeof(In));
    sum = op.combine(d, sum, LoadLanes(d, padded));
  }
  Out result[kLanes] = {};
  StoreLanes(op.last(d, sum), d, result);
  for (int k = 0; k < spans.destination_count; ++k) {
    std::memcpy(static_cast<Out*>(spans.destinations[k]) + i, result, rest * sizeof(Out));
  }
}

template <class In, class Out, class Op>
void ReduceSpans(const Op& op, const Spans& spans) {
  const hn::ScalableTag<Compute<In>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 4 * lanes <= spans.n; i += 4 * lanes) {
    ReduceAt<4, In, Out>(d, op, spans, i);
  }
  for (; i + lanes <= spans.n; i += lanes) {
    ReduceAt<1, In, Out>(d, op, spans, i);
  }
  if (i < spans.n) {
    ReduceTail<In, Out>(d, op, spans, i);
  }
}

template <class In, class Out>
bool ReduceFloats(const Reduction& reduction, const Spans& spans) {
  int exponent;
  const bool exact_inverse = std::frexp(reduction.divisor, &exponent) == 0.5;
  if (reduction.kind == ReduceOp::Kind::max) {
    ReduceSpans<In, Out>(ExtremeOf<false>(), spans);
  } else if (reduction.kind == ReduceOp::Kind::min) {
    ReduceSpans<In, Out>(ExtremeOf<true>(), spans);
  } else if (reduction.before == 1.0 && reduction.divisor == 1.0) {
    ReduceSpans<In, Out>(SumOf(), spans);
  } else if (exact_inverse) {
    ReduceSpans<In, Out>(ScaledSumOf<false>{reduction.before, 1.0 / reduction.divisor}, spans);
  } else {
    ReduceSpans<In, Out>(ScaledSumOf<true>{reduction.before, reduction.divisor}, spans);
  }
  return true;
}

template <class T>
bool ReduceIntegers(const Reduction& reduction, const Spans& spans) {
  if (reduction.kind == ReduceOp::Kind::max) {
    ReduceSpans<T, T>(ExtremeOf<false>(), spans);
  } else if (reduction.kind == ReduceOp::Kind::min) {
    ReduceSpans<T, T>(ExtremeOf<true>(), spans);
  } else {
    ReduceSpans<T, T>(SumOf(), spans);
  }
  return true;
}

template <class In>
bool ReduceFrom(const Reduction& reduction, c10::ScalarType out, const Spans& spans) {
  switch (out) {
    case c10::ScalarType::Float:
      return ReduceFloats<In, float>(reduction, spans);
    case c10::ScalarType::Half:
      return ReduceFloats<In, HalfBits>(reduction, spans);
    case c10::ScalarType::BFloat16:
      return ReduceFloats<In, BrainBits>(reduction, spans);
    default:
      return false;
  }
}

bool ReduceAny(const Reduction& reduction, c10::ScalarType in, c10::ScalarType out,
               const Spans& spans) {
  switch (in) {
    case c10::ScalarType::Float:
      return ReduceFrom<float>(reduction, out, spans);
    case c10::ScalarType::Half:
      return ReduceFrom<HalfBits>(reduction, out, spans);
    case c10::ScalarType::BFloat16:
      return ReduceFrom<BrainBits>(reduction, out, spans);
    default:
      break;
  }
  if (in != out) {
    return false;
  }
  switch (in) {
    case c10::ScalarType::Double:
      return ReduceFloats<double, double>(reduction, spans);
    case c10::ScalarType::Char:
      return ReduceIntegers<int8_t>(reduction, spans);
    case c10::ScalarType::Byte:
    case c10::ScalarType::Bool:
      return ReduceIntegers<uint8_t>(reduction, spans);
    case c10::ScalarType::Short:
      return ReduceIntegers<int16_t>(reduction, spans);
    case c10::ScalarType::Int:
      return ReduceIntegers<int32_t>(reduction, spans);
    case c10::ScalarType::Long:
      return ReduceIntegers<int64_t>(reduction, spans);
    default:
      return false;
  }
}

}  // namespace lockstep::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {

HWY_EXPORT(ReduceAny);

Reduction make_reduction(ReduceOp op, int ranks) {
  if (op.kind() != ReduceOp::Kind::avg) {
    return {op.kind()};
  }
  const double f = op.predivide_factor();
  return {op.kind(), 1.0 / f, ranks / f};
}

void reduce(const Reduction& reduction, c10::ScalarType in, const void* const* sources,
            int source_count, c10::ScalarType out, void* const* destinations, int destination_count,
            int64_t n) {
  const Spans spans{sources, source_count, destinations, destination_count, n};
  LOCKSTEP_CHECK(HWY_DYNAMIC_DISPATCH(ReduceAny)(reduction, in, out, spans), "reduce from ", in,
                 " to ", out, ": these types cannot be reduced");
}

}  // namespace lockstep::kernels
#endif
