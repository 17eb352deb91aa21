#include "scaler_sequence.h"
#include "test_names.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/amp/impl/update_rule.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <cmath>
#include <limits>
#include <random>

namespace lockstep {
namespace {

using amp::GrowthRule;
using amp::LossScaler;
using amp::LossScalerOptions;

LossScalerOptions quick(double init, int64_t interval) {
  return LossScalerOptions::torch().init_scale(init).growth_interval(interval);
}

LossScalerOptions deepspeed(double init, int64_t window) {
  return LossScalerOptions::deepspeed().init_scale(init).growth_interval(window).hysteresis(1);
}

TEST(LossScaleRules, TorchUpdateScale) {
  LossScaler scaler(quick(4, 2), device());
  scaler.update(false);
  EXPECT_EQ(scaler.value(), 4);
  EXPECT_EQ(scaler.state().growth_tracker, 1);
  scaler.update(false);
  EXPECT_EQ(scaler.value(), 8);
  EXPECT_EQ(scaler.state().growth_tracker, 0);
  scaler.update(true);
  EXPECT_EQ(scaler.value(), 4);
  EXPECT_EQ(scaler.state().growth_tracker, 0);
}

TEST(LossScaleRules, OverflowHalvesFromTheInitialScale) {
  EXPECT_THAT(scales(quick(4, 2), "1"), ElementsAre(2));
}

TEST(LossScaleRules, IntervalThree) {
  EXPECT_THAT(
      scales(quick(65536, 3), "00100011000"),
      ElementsAre(65536, 65536, 32768, 32768, 32768, 65536, 32768, 16384, 16384, 16384, 32768));
}

TEST(LossScaleRules, WeightsChangeExactlyOnCleanSteps) {
  const std::string pattern = "0100110000";
  LossScaler scaler(quick(8, 2), device());
  const auto rule = SGD(0.5).rule(0);
  amp::FlatSpan span;
  span.master = at::ones({16});
  amp::StepState state;
  std::vector<float> values;
  for (const char update : pattern) {
    span.gradient = at::full({16}, static_cast<float>(scaler.value()));
    state.gradient_factor = amp::gradient_factor(scaler.value());
    state.skip = update == '1';
    const at::Tensor before = span.master.clone();
    rule->apply(span, &state);
    const at::Tensor expected = state.skip ? before : before - 0.5;
    EXPECT_TRUE(at::equal(span.master, expected)) << span.master;
    scaler.update(state.skip);
    values.push_back(static_cast<float>(scaler.value()));
  }
  EXPECT_THAT(values, ElementsAre(8, 4, 4, 8, 4, 2, 2, 4, 4, 8));
}

TEST(LossScaleRules, CleanDoublesAndSkippedHalves) {
  for (int clean = 0; clean <= 4; ++clean) {
    for (int skipped = 0; skipped <= 4; ++skipped) {
      LossScaler scaler(quick(128, 1), device());
      scales(scaler, std::string(clean, '0') + std::string(skipped, '1'));
      EXPECT_EQ(scaler.value(), 128 * std::pow(2, clean) * std::pow(0.5, skipped));
    }
  }
}

TEST(LossScaleRules, GrowthNeverPassesTheLargestFloat) {
  const float top = std::ldexp(1.0F, 127);
  EXPECT_THAT(scales(quick(top / 2, 1), "000"), ElementsAre(top, top, top));
}

TEST(LossScaleRules, AGrowthBeyondFp32IsNotTaken) {
  const float top = std::ldexp(1.0F, 127);
  auto torchs = at::full({}, top);
  auto tracker = at::zeros({}, at::kInt);
  at::_amp_update_scale_(torchs, tracker, at::zeros({}), 2.0, 0.5, 1);
  ASSERT_EQ(torchs.item<float>(), top);
  const auto options = quick(top, 1).max_scale(std::numeric_limits<float>::max());
  EXPECT_THAT(scales(options, "00"), ElementsAre(top, top));
}

TEST(LossScaleRules, ApexStaysAtItsCap) {
  const auto options = LossScalerOptions::apex().init_scale(std::ldexp(1.0, 22)).growth_interval(1);
  const float cap = std::ldexp(1.0F, 24);
  EXPECT_THAT(scales(options, "0000"), ElementsAre(cap / 2, cap, cap, cap));
}

TEST(LossScaleRules, CapThatIsNoPowerOfTheScaleIsReached) {
  EXPECT_THAT(scales(quick(4, 1).max_scale(10), "00"), ElementsAre(8, 10));
}

TEST(LossScaleRules, DeepSpeedAllOverflow) {
  EXPECT_THAT(scales(deepspeed(16, 1000), "11111111"), ElementsAre(8, 4, 2, 1, 1, 1, 1, 1));
  LossScaler floor_two(deepspeed(16, 1000).min_scale(2), device());
  EXPECT_THAT(scales(floor_two, "11111111"), ElementsAre(8, 4, 2, 2, 2, 2, 2, 2));
  EXPECT_EQ(floor_two.state().iteration, 8);
}

TEST(LossScaleRules, DeepSpeedSomeOverflow) {
  EXPECT_THAT(scales(deepspeed(256, 2), "110001"), ElementsAre(128, 64, 64, 64, 128, 64));
}

TEST(LossScaleRules, DeepSpeedNoOverflowGrowsOneUpdateLater) {
  EXPECT_THAT(scales(deepspeed(256, 2), "0000000000"),
              ElementsAre(256, 256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096));
  EXPECT_THAT(scales(quick(256, 2), "000000"), ElementsAre(256, 512, 512, 1024, 1024, 2048));
}

TEST(LossScaleRules, HysteresisSticky) {
  for (const auto& options :
       {LossScalerOptions::megatron().init_scale(65536), LossScalerOptions::deepspeed()}) {
    EXPECT_THAT(scales(options, "1010111"),
                ElementsAre(65536, 65536, 32768, 32768, 16384, 8192, 4096));
  }
}

TEST(LossScaleRules, HysteresisRefilledByCleanUpdates) {
  const auto options = LossScalerOptions::apex().hysteresis(2).consecutive_hysteresis(true);
  EXPECT_THAT(scales(options, "1010111"),
              ElementsAre(65536, 65536, 65536, 65536, 65536, 32768, 16384));
}

TEST(LossScaleRules, StickyAllowanceRefillsWhenTheScaleGrows) {
  const auto options = LossScalerOptions::megatron().init_scale(64).growth_interval(2);
  EXPECT_THAT(scales(options, "110011"), ElementsAre(64, 32, 32, 64, 64, 32));
}

TEST(LossScaleRules, TheFloorIsNeverZeroAndSkipsAreCounted) {
  LossScaler scaler(LossScalerOptions::torch().max_consecutive_skips(3), device());
  scales(scaler, std::string(400, '1'));
  EXPECT_EQ(scaler.value(), std::numeric_limits<float>::min());
  EXPECT_EQ(scaler.state().consecutive_skips, 400);
  EXPECT_EQ(scaler.state().skipped, 400);
}

TEST(LossScaleRules, AConfiguredBudgetOfSkipsEndsInAnError) {
  const auto options = LossScalerOptions::torch().max_consecutive_skips(3);
  LossScaler scaler(options, device());
  scales(scaler, "1101");
  EXPECT_NO_THROW(check_skip_budget(options, scaler.state()));
  scales(scaler, "11");
  EXPECT_NO_THROW(check_skip_budget(LossScalerOptions::torch(), scaler.state()));
  try {
    check_skip_budget(options, scaler.state());
    FAIL() << "the budget was spent";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::non_finite);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("3 updates in a row"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("smaller init_scale"));
  }
}

TEST(LossScaleRules, AtTheFloorTheErrorBlamesModelOrData) {
  const auto options = LossScalerOptions::deepspeed().max_consecutive_skips(2);
  amp::ScalerState state;
  state.scale = 1.0F;
  state.consecutive_skips = 2;
  try {
    check_skip_budget(options, state);
    FAIL() << "the budget was spent";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the model or the data"));
  }
}

TEST(LossScaleRules, InverseScaleIsRoundedOnce) {
  for (const float scale : {3.0F, 65536.0F, 1.0e-30F, 7.7e20F}) {
    EXPECT_EQ(amp::gradient_factor(scale), static_cast<float>(1.0 / static_cast<double>(scale)));
    EXPECT_EQ(amp::gradient_factor(scale, 0.3), static_cast<float>(1.0 / double{scale} * 0.3));
  }
}

/// 2000 random updates give the bits of the operator behind torch.amp.GradScaler.
void follow_torch(double growth, double backoff, int64_t interval) {
  std::mt19937 random(7);
  LossScaler scaler(quick(1000.3, interval).growth_factor(growth).backoff_factor(backoff),
                    device());
  auto scale = at::full({}, 1000.3F);
  auto tracker = at::zeros({}, at::kInt);
  for (int i = 0; i < 2000; ++i) {
    const bool overflow = random() % 5 == 0;
    scaler.update(overflow);
    at::_amp_update_scale_(scale, tracker, at::full({}, overflow ? 1.0F : 0.0F), growth, backoff,
                           interval);
    ASSERT_EQ(static_cast<float>(scaler.value()), scale.item<float>()) << "update " << i;
    ASSERT_EQ(scaler.state().growth_tracker, tracker.item<int>()) << "update " << i;
  }
}

TEST(LossScaler, HasTheBitsOfTorchsOperator) {
  follow_torch(2.0, 0.5, 4);
  follow_torch(1.001, 0.997, 1);
  follow_torch(1.37, 0.71, 3);
}

TEST(LossScaleRules, TorchsOperatorCollapsesToZero) {
  auto scale = at::full({}, 65536.0F);
  auto tracker = at::zeros({}, at::kInt);
  for (int i = 0; i < 166; ++i) {
    at::_amp_update_scale_(scale, tracker, at::ones({}), 2.0, 0.5, 2000);
  }
  EXPECT_EQ(scale.item<float>(), 0.0F);
  LossScaler scaler(LossScalerOptions::torch(), device());
  scales(scaler, std::string(166, '1'));
  EXPECT_GT(scaler.value(), 0);
}

}  // namespace
}  // namespace lockstep
