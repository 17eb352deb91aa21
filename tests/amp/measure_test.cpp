#include "spans.h"

#include <lockstep/amp/impl/flat_kernels.h>
#include <lockstep/amp/update/measure.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "test_device.h"
#include "test_names.h"

namespace lockstep {
namespace {

using amp::measure;

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble};
constexpr double kBad[] = {std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()};

/// What a step measures on device().
bool all_finite(const at::Tensor& values) {
  const at::Tensor flat = values.to(testing::device());
  const at::Tensor totals = testing::zeros({2}, at::kDouble);
  amp::measure_into(flat, totals);
  return totals[1].item<double>() == 0.0;
}

TEST(NonFiniteValues, OneBadElementAtEveryPosition) {
  testing::for_each_target([](const std::string& target) {
    for (const auto dtype : kTypes) {
      for (int64_t size = 1; size <= 200; size = size < 40 ? size + 1 : size + 53) {
        const auto clean = at::randn({size}).to(dtype);
        ASSERT_TRUE(all_finite(clean)) << target << " " << dtype << " size " << size;
        for (int64_t at = 0; at < size; ++at) {
          auto spoilt = clean.clone();
          spoilt[at] = kBad[at % 3];
          ASSERT_FALSE(all_finite(spoilt))
              << target << " " << dtype << " element " << at << " of " << size;
        }
      }
    }
  });
}

TEST(NonFiniteValues, BadElementsOfALongArray) {
  for (const auto dtype : kTypes) {
    const auto clean = at::randn({5003}).to(dtype);
    for (const int64_t at : {0, 1023, 1024, 1025, 4095, 5002}) {
      for (const double bad : kBad) {
        auto spoilt = clean.clone();
        spoilt[at] = bad;
        EXPECT_FALSE(all_finite(spoilt)) << dtype << " element " << at;
      }
    }
  }
}

TEST(NonFiniteValues, NonFiniteValuesOfTransposedAndSlicedGradients) {
  for (const double bad : kBad) {
    auto dense = at::ones({6, 8});
    dense[2][3] = bad;
    EXPECT_FALSE(all_finite(dense.t().contiguous()));
    EXPECT_FALSE(all_finite(dense.slice(1, 2, 5).contiguous()));
    EXPECT_TRUE(all_finite(dense.slice(1, 4, 8).contiguous()));
  }
}

TEST(NonFiniteValues, ACleanArrayAfterABadOneDoesNotClearTheFlag) {
  auto joined = at::randn({4096});
  joined[7] = kBad[0];
  EXPECT_FALSE(all_finite(joined));
  EXPECT_TRUE(all_finite(joined.slice(0, 8)));
}

TEST(Measure, SumOfSquaresIsThatOfFp64) {
  for (const auto dtype : kTypes) {
    for (const int64_t size : {0, 1, 15, 16, 17, 1000, 1024, 1040, 100003}) {
      const auto values = at::randn({size}, at::kDouble).to(dtype);
      const double expected = values.to(at::kDouble).square().sum().item<double>();
      EXPECT_NEAR(measure(values).sum_squares, expected, 1e-13 * expected) << dtype << size;
    }
  }
}

TEST(Measure, HasTheSameBitsOnEveryInstructionSet) {
  for (const auto dtype : kTypes) {
    for (const int64_t size : {17, 48, 64, 80, 100, 333, 1000, 4099, 100003}) {
      const auto values = at::randn({size}, at::kDouble).to(dtype);
      const double expected = measure(values).sum_squares;
      testing::for_each_target([&](const std::string& target) {
        EXPECT_EQ(measure(values).sum_squares, expected) << target << " " << dtype << size;
      });
    }
  }
}

TEST(Measure, ElementIBelongsToLaneIModulo16) {
  const auto values = at::randn({16 * 7 + 5});
  double lanes[16] = {};
  for (int64_t i = 0; i < values.numel(); ++i) {
    const double x = values[i].item<float>();
    lanes[i % 16] += x * x;
  }
  double expected = 0.0;
  for (const double lane : lanes) {
    expected += lane;
  }
  EXPECT_EQ(measure(values).sum_squares, expected);
}

/// What a step measures where each rank measures one part.
std::vector<double> measured_by_parts(const at::Tensor& flat, const amp::MeasuredParts& parts) {
  const at::Tensor sums =
      testing::zeros({amp::measured_sums(parts, testing::device().type())}, at::kDouble);
  for (int part = 0; part < parts.count; ++part) {
    const at::Tensor own = at::zeros_like(sums);
    amp::measure_part(amp::part_of(flat, parts, part), parts, part, own);
    sums.add_(own);  // as an all-reduce of what the ranks have measured
  }
  const at::Tensor totals = testing::zeros({2}, at::kDouble);
  amp::add_measured(sums, totals);
  const at::Tensor host = totals.cpu();
  return {host[0].item<double>(), host[1].item<double>()};
}

TEST(MeasuredParts, HaveTheBitsOfOneRankThatMeasuresAll) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int count : {1, 2, 3, 7}) {
      const amp::MeasuredParts parts{2048, count};
      for (const int64_t size : {64, 2048, 4032}) {
        if (size > count * parts.each) {
          continue;
        }
        const at::Tensor flat = at::randn({size}).to(dtype).to(testing::device());
        const at::Tensor totals = testing::zeros({2}, at::kDouble);
        amp::measure_into(flat, totals, parts);
        const std::vector<double> found = measured_by_parts(flat, parts);
        EXPECT_EQ(found[0], totals[0].item<double>()) << dtype << size << " in " << count;
        EXPECT_EQ(found[1], 0.0);
        EXPECT_NEAR(found[0], measure(flat.cpu()).sum_squares, 1e-12 * found[0]);
      }
    }
  }
}

TEST(MeasuredParts, OneBadElementInAnyPartIsFound) {
  const amp::MeasuredParts parts{64, 3};
  for (const double bad : kBad) {
    for (const int64_t element : {0, 63, 64, 130}) {
      at::Tensor flat = at::ones({131}, testing::device());
      flat[element] = bad;
      EXPECT_EQ(measured_by_parts(flat, parts)[1], 1.0) << bad << " at " << element;
      const at::Tensor totals = testing::zeros({2}, at::kDouble);
      amp::measure_into(flat, totals, parts);
      EXPECT_EQ(totals[1].item<double>(), 1.0) << bad << " at " << element;
    }
  }
}

TEST(MeasuredParts, FiniteElementsOf64BitsWithoutAFiniteSumAreFinite) {
  const amp::MeasuredParts parts{64, 2};
  const at::Tensor flat = at::full({100}, 1e300, at::kDouble);
  if (testing::device().is_cpu()) {  // buckets in device memory are never fp64
    EXPECT_EQ(measured_by_parts(flat, parts)[1], 0.0);
  }
}

TEST(Measure, TheLargestFiniteValuesAreFinite) {
  EXPECT_TRUE(measure(at::full({100}, std::numeric_limits<float>::max())).finite);
  EXPECT_TRUE(measure(at::full({100}, 65504.0, at::kHalf)).finite);
  EXPECT_TRUE(measure(at::full({100}, 3.3e38, at::kBFloat16)).finite);
  EXPECT_TRUE(measure(at::full({100}, 1e300, at::kDouble)).finite);
}

TEST(Measure, AnEmptyArrayIsFinite) {
  EXPECT_TRUE(measure(at::empty({0})).finite);
  EXPECT_EQ(measure(at::empty({0})).sum_squares, 0.0);
}

TEST(Measure, RefusesWhatIsNotFlat) {
  expect_error([] { measure(at::Tensor()); }, "undefined");
  expect_error([] { measure(at::ones({4, 4}).t().slice(0, 1)); }, "contiguous");
  expect_error([] { measure(at::ones({4}, at::kLong)); }, "dtype is Long");
}

TEST(NonFiniteValues, TheMaximumOfValuesHidesNan) {
  const auto values = at::tensor({1.0F, std::nanf(""), 2.0F});
  float largest = 0.0F;
  for (int64_t i = 0; i < values.numel(); ++i) {
    largest = std::max(largest, values[i].item<float>());
  }
  EXPECT_TRUE(std::isfinite(largest));
  EXPECT_FALSE(all_finite(values));
}

}  // namespace
}  // namespace lockstep
