// Sums in fixed point: the same bits in any order, and accurate.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/amp/impl/fixed_point.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace lockstep::amp {
namespace {

at::Tensor summed(const std::vector<at::Tensor>& terms, const std::vector<size_t>& order) {
  const FixedPoint form = FixedPoint::for_terms(static_cast<int64_t>(terms.size()));
  const at::Tensor sums = at::full({terms[0].numel()}, 77, at::kLong);
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_TRUE(form.add(sums, terms[order[i]], /*first=*/i == 0));
  }
  const at::Tensor mean = at::empty({terms[0].numel()}, at::kFloat);
  form.read(mean, sums, 1.0 / static_cast<double>(terms.size()));
  return mean;
}

TEST(FixedPointSums, HaveTheSameBitsInAnyOrder) {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    std::vector<at::Tensor> terms;
    for (int i = 0; i < 24; ++i) {
      terms.push_back((at::randn({5003}) * std::pow(10.0, i % 7 - 4)).to(dtype));
    }
    std::vector<size_t> order(terms.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const at::Tensor expected = summed(terms, order);
    std::mt19937_64 draw(1);
    for (int i = 0; i < 5; ++i) {
      std::shuffle(order.begin(), order.end(), draw);
      EXPECT_TRUE(at::equal(summed(terms, order), expected)) << dtype;
    }
    at::Tensor exact = at::zeros({5003}, at::kDouble);
    for (const at::Tensor& term : terms) {
      exact += term.to(at::kDouble);
    }
    EXPECT_LE(
        (expected.to(at::kDouble) - exact / 24).abs().max().item<double>(),
        std::ldexp(1.0, -43) + (exact / 24).abs().max().item<double>() * std::ldexp(1.0, -24));
  }
}

TEST(FixedPointSums, RoundToNearestEvenStep) {
  const FixedPoint form = FixedPoint::for_terms(1);
  EXPECT_EQ(form.fraction_bits, 48);
  const auto step = static_cast<float>(std::ldexp(1.0, -48));
  const at::Tensor terms = at::tensor({step, 0.5F * step, 1.5F * step, -2.5F * step, 16383.0F});
  const at::Tensor sums = at::zeros({5}, at::kLong);
  EXPECT_TRUE(form.add(sums, terms, /*first=*/false));
  EXPECT_TRUE(at::equal(
      sums, at::tensor({int64_t{1}, int64_t{0}, int64_t{2}, int64_t{-2}, int64_t{16383} << 48})));
}

TEST(FixedPointSums, WhatDoesNotFitIsToldAndCountsAsZero) {
  const FixedPoint form = FixedPoint::for_terms(3);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad :
       {16384.0F, -16384.0F, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const int64_t place : {0, 7, 20}) {
      const at::Tensor terms = at::ones({21});
      terms[place] = bad;
      const at::Tensor sums = at::zeros({21}, at::kLong);
      EXPECT_FALSE(form.add(sums, terms, /*first=*/false)) << bad << " at " << place;
      EXPECT_EQ(sums[place].item<int64_t>(), 0);
      EXPECT_EQ(sums.sum().item<int64_t>(), int64_t{20} << form.fraction_bits);
    }
  }
}

TEST(FixedPointSums, TheLargestTermsDoNotOverflow) {
  for (const int64_t count : {1, 2, 3, 24, 1000}) {
    const FixedPoint form = FixedPoint::for_terms(count);
    const at::Tensor sums = at::zeros({9}, at::kLong);
    const at::Tensor term = at::full({9}, std::nextafter(16384.0F, 0.0F));
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_TRUE(form.add(sums, term, /*first=*/i == 0));
    }
    const at::Tensor mean = at::empty({9}, at::kFloat);
    form.read(mean, sums, 1.0 / static_cast<double>(count));
    EXPECT_TRUE(at::equal(mean, term)) << count;
  }
}

TEST(FixedPointSums, AreReadIn16Bits) {
  const FixedPoint form = FixedPoint::for_terms(1);
  const at::Tensor terms = at::linspace(-100.0, 100.0, 5003);
  const at::Tensor sums = at::zeros({5003}, at::kLong);
  EXPECT_TRUE(form.add(sums, terms, /*first=*/true));
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor read = at::empty({5003}, dtype);
    form.read(read, sums, 0.5);
    EXPECT_TRUE(at::equal(read, (terms * 0.5).to(dtype)));
  }
}

}  // namespace
}  // namespace lockstep::amp
