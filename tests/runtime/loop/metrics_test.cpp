#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/loop/own/exact_sum.h>
#include <lockstep/runtime/metrics.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "error_of.h"
#include "test_names.h"

namespace lockstep {
namespace {

using Words = std::array<int64_t, detail::kExactSumWords>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Words words_of(const std::vector<double>& values) {
  Words words{};
  detail::add_exactly(words.data(), values.data(), static_cast<int64_t>(values.size()));
  return words;
}

double exact_sum(const std::vector<double>& values) {
  return detail::rounded_sum(words_of(values).data());
}

TEST(ExactSum, LosesNothing) {
  EXPECT_EQ(exact_sum({}), 0.0);
  EXPECT_EQ(exact_sum({0.1}), 0.1);
  EXPECT_EQ(exact_sum({-0.1}), -0.1);
  EXPECT_EQ(exact_sum({1e300, 1.0, -1e300}), 1.0);
  EXPECT_EQ(exact_sum({-1e300, -1.0, 1e300}), -1.0);
  EXPECT_EQ(exact_sum({1e16, 1.0, 1.0}), 1e16 + 2.0);
  EXPECT_EQ(exact_sum({0.1, 0.2, -0.1, -0.2}), 0.0);
  const double least = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(exact_sum({least, least, least}), 3 * least);
  EXPECT_EQ(exact_sum({1.0, least, -1.0}), least);
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(exact_sum({most, most, -most}), most);
  EXPECT_EQ(exact_sum({-most}), -most);
}

TEST(ExactSum, HasTheSameBitsInAnyOrderAndInParts) {
  std::mt19937_64 generator(4);
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) {
    const auto fraction = static_cast<double>(static_cast<int64_t>(generator()));
    values.push_back(std::ldexp(fraction, static_cast<int>(generator() % 200) - 160));
  }
  const double expected = exact_sum(values);
  for (int round = 0; round < 5; ++round) {
    std::shuffle(values.begin(), values.end(), generator);
    EXPECT_EQ(exact_sum(values), expected);
    const auto middle = values.begin() + 300 * round / 2;
    Words first = words_of({values.begin(), middle});
    const Words second = words_of({middle, values.end()});
    for (size_t i = 0; i < first.size(); ++i) {
      first[i] += second[i];
    }
    EXPECT_EQ(detail::rounded_sum(first.data()), expected);
  }
}

TEST(ExactSum, IsRoundedOnce) {
  const double half = std::ldexp(1.0, -53);  // of the last digit of 1
  const double next = 1.0 + 2 * half;
  EXPECT_EQ(exact_sum({1.0, half}), 1.0);  // to even
  EXPECT_EQ(exact_sum({next, half}), next + 2 * half);
  EXPECT_EQ(exact_sum({1.0, half, std::ldexp(1.0, -120)}), next);
  EXPECT_EQ(exact_sum({1.0, half, std::ldexp(1.0, -1074)}), next);
  EXPECT_EQ(exact_sum({-1.0, -half, -std::ldexp(1.0, -120)}), -next);
  EXPECT_EQ(exact_sum({1.0, half, -std::ldexp(1.0, -1074)}), 1.0);
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(exact_sum({most, most}), kInfinity);
  EXPECT_EQ(exact_sum({-most, -most}), -kInfinity);
  EXPECT_EQ(exact_sum({most, most, -most}), most);
  std::mt19937_64 generator(3);
  for (int i = 0; i < 10'000; ++i) {  // long double holds the sum of two such numbers exactly
    const auto draw = [&] {
      const double sign = generator() % 2 == 0 ? 1.0 : -1.0;
      return sign * std::ldexp(static_cast<double>(generator() >> 11U),
                               static_cast<int>(generator() % 11) - 5 - 40 * (i % 25));
    };
    const double a = draw(), b = draw();
    EXPECT_EQ(exact_sum({a, b}), static_cast<double>(static_cast<long double>(a) + b)) << a << b;
  }
}

TEST(ExactSum, IsNearALongSum) {
  std::vector<double> values;
  long double expected = 0.0L;
  for (int i = 0; i < 100'000; ++i) {
    values.push_back(std::sin(i) * 3.0);
    expected += values.back();
  }
  EXPECT_NEAR(exact_sum(values), static_cast<double>(expected), 1e-12);
}

TEST(ExactSum, TellsWhatIsNoNumber) {
  EXPECT_TRUE(std::isnan(exact_sum({1.0, std::nan("")})));
  EXPECT_TRUE(std::isnan(exact_sum({kInfinity, -kInfinity})));
  EXPECT_EQ(exact_sum({kInfinity, 1.0}), kInfinity);
  EXPECT_EQ(exact_sum({-kInfinity, 1.0, -kInfinity}), -kInfinity);
}

at::Tensor classes(const std::vector<int64_t>& numbers) {
  return at::tensor(numbers, at::kLong);
}

double value_of(Metric&& metric, const at::Tensor& output, const at::Tensor& target) {
  metric.add({output, target});
  return metric.value();
}

TEST(Metrics, TopKIsThatOfLibTorch) {
  const at::Tensor scores = at::randn({50, 9});
  const at::Tensor targets = at::randint(9, {50}, at::kLong);
  for (const int64_t k : {1, 2, 5, 9, 12}) {
    const at::Tensor best = std::get<1>(scores.topk(std::min<int64_t>(k, 9), 1));
    const auto hits = best.eq(targets.unsqueeze(1)).sum().item<int64_t>();
    EXPECT_EQ(value_of(TopK(k), scores, targets), static_cast<double>(hits) / 50.0) << k;
  }
  EXPECT_EQ(value_of(Accuracy(), scores.view({5, 10, 9}), targets.view({5, 10})),
            value_of(TopK(1), scores, targets));
  EXPECT_EQ(TopK(5).name(), "top5");
}

TEST(Metrics, EqualScoresAndNaNCountForNoGood) {
  const at::Tensor equal = at::zeros({2, 4});
  EXPECT_EQ(value_of(Accuracy(), equal, classes({0, 3})), 0.5);
  EXPECT_EQ(value_of(TopK(2), equal, classes({1, 2})), 0.5);
  const at::Tensor nan = at::full({2, 3}, std::nan(""));
  EXPECT_EQ(value_of(Accuracy(), nan, classes({0, 1})), 0.0);
  EXPECT_TRUE(std::isnan(value_of(MeanLoss(), nan, classes({0, 1}))));
}

TEST(Metrics, IgnoredTargetsAreNotCounted) {
  const at::Tensor scores = at::randn({4, 3});
  const at::Tensor targets = classes({2, kIgnoredTarget, 0, kIgnoredTarget});
  const at::Tensor kept = scores.index_select(0, classes({0, 2}));
  EXPECT_EQ(value_of(Accuracy(), scores, targets), value_of(Accuracy(), kept, classes({2, 0})));
  EXPECT_NEAR(value_of(MeanLoss(), scores, targets),
              at::cross_entropy_loss(scores, targets).item<double>(), 1e-6);
  ConfusionMatrix confusion(3);
  confusion.add({scores, targets});
  EXPECT_EQ(confusion.matrix().sum().item<int64_t>(), 2);
  const at::Tensor none = classes({kIgnoredTarget, kIgnoredTarget});
  EXPECT_TRUE(std::isnan(value_of(Accuracy(), scores.slice(0, 0, 2), none)));
  EXPECT_TRUE(std::isnan(value_of(Perplexity(), scores.slice(0, 0, 2), none)));
}

TEST(Metrics, HalfScoresAreSummedInFullPrecision) {
  const at::Tensor scores = at::randn({64, 5}).to(at::kBFloat16);
  const at::Tensor targets = at::randint(5, {64}, at::kLong);
  EXPECT_EQ(value_of(MeanLoss(), scores, targets),
            value_of(MeanLoss(), scores.to(at::kFloat), targets));
}

TEST(Metrics, ConfusionMatrixHasTargetsInRows) {
  const at::Tensor scores = at::eye(3).index_select(0, classes({0, 1, 1, 2}));
  ConfusionMatrix confusion(3);
  confusion.add({scores, classes({0, 0, 1, 1})});
  EXPECT_TRUE(at::equal(confusion.matrix(), classes({1, 1, 0, 0, 1, 1, 0, 0, 0}).view({3, 3})));
  EXPECT_EQ(confusion.value(), 0.5);
}

TEST(Metrics, SayWhetherTheLowerValueIsTheBetterOne) {
  EXPECT_EQ(Accuracy().lower_is_better(), false);
  EXPECT_EQ(TopK(3).lower_is_better(), false);
  EXPECT_EQ(ConfusionMatrix(2).lower_is_better(), false);
  EXPECT_EQ(MeanLoss().lower_is_better(), true);
  EXPECT_EQ(Perplexity().lower_is_better(), true);
  EXPECT_EQ(MeanOf("some").lower_is_better(), std::nullopt);
  EXPECT_EQ(MeanOf("bleu", nullptr, /*lower_is_better=*/false).lower_is_better(), false);
}

TEST(Metrics, LossesAreTakenAsTheyAre) {
  MeanLoss loss;
  loss.add({at::tensor({1.0, 2.0}), {}});
  loss.add({at::tensor({6.0}), classes({1, 1, 1}).unsqueeze(0)});  // a text
  EXPECT_EQ(loss.value(), 3.0);
  Perplexity perplexity;
  perplexity.add({at::tensor({1.0, 3.0}), {}});
  EXPECT_EQ(perplexity.value(), std::exp(2.0));
}

TEST(Metrics, RefuseWhatDoesNotFit) {
  const at::Tensor scores = at::randn({4, 3});
  const auto refusal = [&](Metric&& metric, const at::Tensor& output, const at::Tensor& target) {
    return error_of([&] { metric.add({output, target}); });
  };
  EXPECT_THAT(refusal(Accuracy(), scores, {}),
              AllOf(HasSubstr("accuracy"), HasSubstr("Prediction")));
  EXPECT_THAT(refusal(MeanLoss(), scores, classes({1, 2})),
              AllOf(HasSubstr("[4, 3]"), HasSubstr("[2]")));
  EXPECT_THAT(refusal(MeanLoss(), scores, at::randn({4})), HasSubstr("Float"));
  EXPECT_THAT(refusal(MeanLoss(), scores, classes({0, 1, 2, 3})), HasSubstr("0 to 3"));
  EXPECT_THAT(refusal(MeanLoss(), at::randn({2}), classes({0, 1})), HasSubstr("[..., classes]"))
      << "logits of two classes are no losses";
  EXPECT_THAT(refusal(Accuracy(), scores, classes({0, -1, 2, 2})), HasSubstr("-1 to 2"));
  EXPECT_THAT(refusal(ConfusionMatrix(5), scores, classes({0, 1, 2, 2})), HasSubstr("5"));
  EXPECT_THAT(refusal(MeanOf("loss"), scores.mean(), {}), HasSubstr("reduction none"));
  EXPECT_THAT(error_of([] { TopK(0); }), HasSubstr("k is 0"));
  EXPECT_THAT(error_of([] { ConfusionMatrix(0); }), HasSubstr("classes is 0"));
}

}  // namespace
}  // namespace lockstep
