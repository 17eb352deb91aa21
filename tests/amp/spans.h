#pragma once

#include "test_device.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <lockstep/amp/impl/update_rule.h>
#include <lockstep/collectives/exceptions.h>

#include <cstring>
#include <functional>
#include <string>

namespace lockstep::testing {

/// A span of `size` random weights with zero moments; no half weight.
inline amp::FlatSpan fp32_span(int64_t size, int moments) {
  amp::FlatSpan span;
  span.gradient = randn({size});
  span.master = randn({size});
  for (int i = 0; i < moments; ++i) {
    span.moments.push_back(zeros({size}));
  }
  return span;
}

inline amp::FlatSpan deep_copy(const amp::FlatSpan& span) {
  const auto copy = [](const at::Tensor& t) { return t.defined() ? t.clone() : t; };
  amp::FlatSpan result = span;
  for (at::Tensor* array :
       {&result.gradient, &result.master, &result.weight, &result.remainder, &result.average}) {
    *array = copy(*array);
  }
  for (at::Tensor& moment : result.moments) {
    moment = moment.clone();
  }
  return result;
}

/// One update, wherever the span is.
inline void apply(const amp::UpdateRule& rule, const amp::FlatSpan& span,
                  const amp::StepState& state) {
  if (!span.gradient.defined() || span.gradient.is_cpu()) {
    rule.apply(span, &state);
    return;
  }
  const at::Tensor bytes = at::empty({static_cast<int64_t>(sizeof state)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &state, sizeof state);
  const at::Tensor there = bytes.to(span.gradient.device());
  rule.apply(span, static_cast<const amp::StepState*>(there.const_data_ptr()));
}

/// Equal bits, also where both are NaN.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) {
    return a.defined() == b.defined();
  }
  const at::Tensor first = a.cpu();
  const at::Tensor second = b.cpu();
  return first.nbytes() == second.nbytes() &&
         (first.nbytes() == 0 ||
          std::memcmp(first.const_data_ptr(), second.const_data_ptr(), first.nbytes()) == 0);
}

inline bool same_bits(const amp::FlatSpan& a, const amp::FlatSpan& b) {
  bool same = same_bits(a.master, b.master) && same_bits(a.weight, b.weight) &&
              same_bits(a.remainder, b.remainder) && same_bits(a.average, b.average);
  for (size_t i = 0; i < a.moments.size(); ++i) {
    same = same && same_bits(a.moments[i], b.moments[i]);
  }
  return same;
}

/// Runs `body` with every instruction set of this machine, down to none.
inline void for_each_target(const std::function<void(const std::string& name)>& body) {
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    const int64_t target = rest & ~(rest - 1);
    hwy::GetChosenTarget().Update(target);
    body(hwy::TargetName(target));
  }
  hwy::GetChosenTarget().Update(0);
  body("baseline");
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

inline void expect_error(const std::function<void()>& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "expected an Error with '" << part << "'";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(part));
  }
}

/// The largest difference is below `relative` of the largest value expected.
inline void expect_close(const at::Tensor& ours, const at::Tensor& expected, double relative) {
  const double scale = expected.abs().max().item<double>() + 1e-30;
  EXPECT_LT((ours.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>() / scale,
            relative);
}

}  // namespace lockstep::testing
