// How fast a dtype is on this processor: what is decided and said from given times.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <lockstep/amp/impl/compute_speed.h>
#include <lockstep/amp/precision.h>

#include <map>

#include "test_names.h"

namespace lockstep::amp {
namespace {

/// Milliseconds: product, the same in fp32, convolution, the same in fp32.
ComputeSpeed speed(double product, double product_fp32, double convolution,
                   double convolution_fp32) {
  return {product / 1e3, product_fp32 / 1e3, convolution / 1e3, convolution_fp32 / 1e3};
}

TEST(ComputeSpeed, ADtypeIsSlowByTheSlowerOfProductAndConvolution) {
  EXPECT_DOUBLE_EQ(speed(1, 2, 3, 1).slowdown(), 3);
  EXPECT_DOUBLE_EQ(speed(8, 2, 3, 1).slowdown(), 4);
  // Measured with AVX512-FP16 and AMX: products in fp16 are fine, convolutions are not.
  EXPECT_THAT(slow_compute_advice(at::kHalf, speed(0.26, 0.15, 213, 2.9)),
              AllOf(HasSubstr("fp16 is slow on this processor"),
                    HasSubstr("1.7 times as long as in fp32 (0.26 ms, 0.15 ms)"),
                    HasSubstr("convolution 73.4 times as long as in fp32 (213.00 ms, 2.90 ms)"),
                    HasSubstr("Precision::automatic(runtime.device())")));
  EXPECT_THAT(slow_compute_advice(at::kBFloat16, speed(6, 1, 1, 1)), HasSubstr("bf16 is slow"));
}

TEST(ComputeSpeed, ADtypeUpToFiveTimesSlowerIsNotSpokenOf) {
  EXPECT_EQ(slow_compute_advice(at::kHalf, speed(5, 1, 5, 1)), "");
  EXPECT_EQ(slow_compute_advice(at::kHalf, speed(1, 5, 1, 5)), "");
  EXPECT_NE(slow_compute_advice(at::kHalf, speed(5.01, 1, 1, 1)), "");
  EXPECT_NE(slow_compute_advice(at::kHalf, speed(1, 1, 5.01, 1)), "");
}

TEST(ComputeSpeed, AutomaticNeedsInstructionsAndSpeed) {
  std::map<at::ScalarType, double> slowdown = {{at::kBFloat16, 0.5}, {at::kHalf, 0.5}};
  int asked = 0;
  const auto measured = [&](at::ScalarType dtype) {
    ++asked;
    return slowdown.at(dtype);
  };
  EXPECT_EQ(fast_16_bit_dtype(true, true, measured), at::kBFloat16);
  EXPECT_EQ(fast_16_bit_dtype(false, true, measured), at::kHalf);
  slowdown[at::kHalf] = 70;
  EXPECT_EQ(fast_16_bit_dtype(false, true, measured), std::nullopt);
  slowdown[at::kBFloat16] = 5.1;
  EXPECT_EQ(fast_16_bit_dtype(true, true, measured), std::nullopt);
  slowdown[at::kHalf] = 1;
  EXPECT_EQ(fast_16_bit_dtype(true, true, measured), at::kHalf);
  asked = 0;
  EXPECT_EQ(fast_16_bit_dtype(false, false, measured), std::nullopt);
  EXPECT_EQ(asked, 0) << "nothing is measured where there are no instructions";
}

TEST(ComputeSpeed, MeasuringLeavesTheProgramsStateAlone) {
  at::manual_seed(3);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(3);
  const ComputeSpeed& measured = compute_speed(at::kBFloat16);
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
  for (const double seconds :
       {measured.product, measured.product_fp32, measured.convolution, measured.convolution_fp32}) {
    EXPECT_GT(seconds, 0);
  }
  EXPECT_EQ(&compute_speed(at::kBFloat16), &measured) << "measured once";
  EXPECT_TRUE(at::GradMode::is_enabled());
}

TEST(ComputeSpeed, AutomaticIsTheSameAtEveryCall) {
  const Precision first = Precision::automatic(at::kCPU);
  const Precision second = Precision::automatic(at::kCPU);
  EXPECT_EQ(first.describe(), second.describe());
  if (first.autocast()) {
    EXPECT_LE(compute_speed(first.compute_dtype()).slowdown(), kSlowCompute);
  }
}

}  // namespace
}  // namespace lockstep::amp
