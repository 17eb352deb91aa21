// Kernels that divide their work: many arrays in one launch, and parts of an array in several.
#include "device_spans.h"
#include "emulated_cuda/launch_count.h"
#include "emulated_launches.h"
#include "guarded_tensors.h"
#include "test_names.h"

#include <gmock/gmock.h>
#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/impl/cast_kernels.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/update/measure.h>

namespace lockstep {
namespace {

/// Delicate values first.
at::Tensor values_to_cast(int64_t size) {
  return at::cat({delicate_values(), at::randn({20019})}).narrow(0, 0, size);
}

TEST(EmulatedCasts, OfManyArraysInOneLaunchHaveTheBitsOfTheHost) {
  std::vector<at::Tensor> sources, expected;
  const at::ScalarType types[] = {at::kFloat, at::kHalf, at::kBFloat16};
  for (size_t i = 0; sources.size() < amp::CastBatch::kArrays; ++i) {
    const int64_t size = i == 3 ? 20019 : static_cast<int64_t>(i * 37 % 400);  // also none
    const at::ScalarType from = types[i % 3], to = types[i / 3 % 3];
    sources.push_back(guarded_copy(values_to_cast(size).to(from)));
    expected.push_back(at::empty({size}, to));
    kernels::cast_scaled(expected.back().mutable_data_ptr(), to, sources.back().const_data_ptr(),
                         from, size, 3.7F);
  }
  for_each_device([&] {
    amp::CastBatch batch;
    std::vector<at::Tensor> found;
    for (size_t i = 0; i < sources.size(); ++i) {
      found.push_back(guarded({sources[i].numel()}, expected[i].scalar_type()));
      ASSERT_TRUE(
          batch.add(amp::elements_of(found[i]), amp::elements_of(sources[i]), sources[i].numel()));
    }
    EXPECT_FALSE(batch.add({}, {}, 1));  // full
    const int64_t before = emulated_cuda::launch_count();
    expect_well(amp::cuda::launch_casts(batch, 3.7F, nullptr));
    EXPECT_EQ(emulated_cuda::launch_count() - before, 1);
    for (size_t i = 0; i < sources.size(); ++i) {
      SCOPED_TRACE(c10::str("array ", i));
      const at::Tensor nan = expected[i].isnan();  // whose bits differ
      EXPECT_TRUE(at::equal(nan, found[i].isnan()));
      EXPECT_TRUE(same_bits(expected[i].masked_fill(nan, 0), found[i].masked_fill(nan, 0)));
    }
    expect_well(amp::cuda::launch_casts({}, 3.7F, nullptr));  // no array
  });
}

/// `at_a_time`: parts that one launch measures; the last parts come first.
amp::MeasureTotals measured(const at::Tensor& flat, const amp::MeasuredParts& parts,
                            int at_a_time) {
  amp::MeasureTotals totals;
  const int sums = amp::cuda::measuring_blocks(parts) * parts.count;
  const at::Tensor partial = guarded({sums}, at::kDouble);
  for (int first = parts.count - at_a_time; first >= 0; first -= at_a_time) {
    expect_well(amp::cuda::launch_squares(amp::elements_of(flat), flat.numel(), parts, first,
                                          at_a_time, partial.mutable_data_ptr<double>(), nullptr));
  }
  expect_well(amp::cuda::launch_totals(partial.const_data_ptr<double>(), sums, &totals, nullptr));
  return totals;
}

TEST(EmulatedMeasures, OfPartsHaveTheBitsOfOneLaunchForAll) {
  for (const int parts : {2, 3, 40}) {
    for (const int64_t size : {int64_t{128}, int64_t{5056}, int64_t{100032}}) {
      const at::Tensor flat = guarded_copy(at::randn({size}).to(at::kBFloat16));
      const int64_t each = (size / parts + 63) / 64 * 64 + 64;  // the last part may be empty
      const amp::MeasuredParts divided{each, parts};
      const double expected = amp::measure(flat).sum_squares;
      std::vector<double> sums;
      for_each_device([&] {
        for (const int at_a_time : {parts, 1}) {
          const amp::MeasureTotals totals = measured(flat, divided, at_a_time);
          EXPECT_NEAR(totals.sum_squares, expected, 1e-12 * expected);
          EXPECT_EQ(totals.not_finite, 0.0);
          sums.push_back(totals.sum_squares);
        }
      });
      EXPECT_THAT(sums, ::testing::Each(sums.front())) << size << " in " << parts;
    }
  }
}

}  // namespace
}  // namespace lockstep
