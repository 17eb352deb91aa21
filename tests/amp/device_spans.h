#pragma once

#include "spans.h"

#include <vector>

namespace lockstep::testing {

/// Every combination of dtypes that updates in device memory take.
struct SpanKind {
  at::ScalarType wire;
  at::ScalarType updated;  // Float: a master, or a weight in fp32
  at::ScalarType copy;     // Undefined: none
};

inline std::vector<SpanKind> span_kinds() {
  std::vector<SpanKind> kinds;
  for (const at::ScalarType wire : {at::kFloat, at::kHalf, at::kBFloat16}) {
    kinds.push_back({wire, at::kFloat, at::ScalarType::Undefined});
    kinds.push_back({wire, at::kFloat, at::kHalf});
    kinds.push_back({wire, at::kFloat, at::kBFloat16});
    kinds.push_back({wire, at::kHalf, at::ScalarType::Undefined});
    kinds.push_back({wire, at::kBFloat16, at::ScalarType::Undefined});
  }
  return kinds;
}

/// Random values; second moments are not negative.
inline amp::FlatSpan random_span(const SpanKind& kind, int64_t size, int moments) {
  amp::FlatSpan span;
  span.gradient = at::randn({size}).to(kind.wire);
  const at::Tensor values = at::randn({size});
  if (kind.updated == at::kFloat) {
    span.master = values;
    if (kind.copy != at::ScalarType::Undefined) {
      span.weight = values.to(kind.copy);
    }
  } else {
    span.weight = values.to(kind.updated);
  }
  for (int m = 0; m < moments; ++m) {
    span.moments.push_back(at::rand({size}));
  }
  return span;
}

/// Sizes below, at and above one pack, one warp and one block.
inline std::vector<int64_t> pack_sizes() {
  return {1, 7, 8, 9, 255, 2048, 5003};
}

/// Values whose conversion is easily wrong: subnormal, halfway, huge, infinite, not a number.
inline at::Tensor delicate_values() {
  std::vector<float> values{
      0.0F,           -0.0F,       1.0F,         6.1e-5F,  6.0e-8F,   2.9e-8F,
      65504.0F,       65519.0F,    65520.0F,     1e-40F,   3.3e38F,   -1.0009765625F,
      1.00048828125F, 1.00390625F, 1.001953125F, INFINITY, -INFINITY, NAN};
  return at::tensor(values);
}

}  // namespace lockstep::testing
