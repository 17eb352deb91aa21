#pragma once

#include "spans.h"

#include <lockstep/amp/update/flat_rule.h>

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

/// How a span is kept where it is not the plain way.
struct SpanForm {
  MomentFormat moments = MomentFormat::fp32;
  bool master = false;  // in fp32, with a bf16 copy; else a bf16 weight
  bool remainder = false;
  bool rounds_randomly = false;
  bool average = false;
};

inline std::vector<SpanForm> span_forms() {
  std::vector<SpanForm> forms;
  for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::bf16}) {
    forms.push_back({moments, true, false, false, moments != MomentFormat::bf16});
    forms.push_back({moments, false, true, false, false});
    forms.push_back({moments, false, true, false, true});
    forms.push_back({moments, false, false, true, moments == MomentFormat::bf16});
  }
  return forms;
}

/// A span of the form that `rule`, which keeps its moments so, has moved twice on the host.
inline amp::FlatSpan span_in_form(const SpanForm& form, int64_t size, const amp::UpdateRule& rule) {
  amp::FlatSpan span;
  span.gradient = at::randn({size}).to(at::kBFloat16);
  span.weight = at::randn({size}).to(at::kBFloat16);
  if (form.master) {
    span.master = at::randn({size});
  }
  if (form.remainder) {
    span.remainder = at::zeros({size}, at::kShort);
  }
  if (form.average) {
    span.average = at::randn({size});
    span.average_rest = 0.1F;
  }
  span.rounds_randomly = form.rounds_randomly;
  span.stream = 5;
  span.first_element = 642;
  amp::add_moments(span, rule);
  amp::StepState state;
  for (state.update = 1; state.update <= 2; ++state.update) {
    rule.apply(span, &state);
  }
  return span;
}

inline std::string describe(const SpanForm& form, int64_t size) {
  return c10::str("moments", amp::describe_moments(form.moments), form.master ? ", master" : "",
                  form.remainder ? ", remainder" : "", form.rounds_randomly ? ", random" : "",
                  form.average ? ", average" : "", ", size ", size);
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
