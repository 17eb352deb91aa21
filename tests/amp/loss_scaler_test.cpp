#include "scaler_sequence.h"
#include "spans.h"
#include "test_names.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace lockstep {
namespace {

using amp::LossScaler;
using amp::LossScalerOptions;

TEST(LossScalerOptions, PresetsArePublishedDefaults) {
  const auto torch = LossScalerOptions::torch();
  EXPECT_EQ(torch.init_scale(), 65536);
  EXPECT_EQ(torch.growth_factor(), 2);
  EXPECT_EQ(torch.backoff_factor(), 0.5);
  EXPECT_EQ(torch.growth_interval(), 2000);
  const auto apex = LossScalerOptions::apex();
  EXPECT_EQ(apex.init_scale(), 65536);
  EXPECT_EQ(apex.growth_interval(), 2000);
  EXPECT_EQ(apex.max_scale(), 16777216);
  const auto deepspeed = LossScalerOptions::deepspeed();
  EXPECT_EQ(deepspeed.init_scale(), 65536);
  EXPECT_EQ(deepspeed.growth_interval(), 1000);
  EXPECT_EQ(deepspeed.hysteresis(), 2);
  EXPECT_EQ(deepspeed.min_scale(), 1);
  EXPECT_EQ(deepspeed.growth_rule(), amp::GrowthRule::iterations_since_overflow);
  const auto megatron = LossScalerOptions::megatron();
  EXPECT_EQ(megatron.init_scale(), 4294967296.0);
  EXPECT_EQ(megatron.growth_interval(), 1000);
  EXPECT_EQ(megatron.hysteresis(), 2);
  EXPECT_EQ(megatron.min_scale(), 1);
}

TEST(LossScalerOptions, PresetsAreValid) {
  for (const auto& options : {LossScalerOptions::torch(), LossScalerOptions::apex(),
                              LossScalerOptions::deepspeed(), LossScalerOptions::megatron(),
                              LossScalerOptions::fixed(128), LossScalerOptions::fixed(1)}) {
    EXPECT_NO_THROW(options.validate());
  }
}

TEST(LossScalerOptions, ErrorsNameTheField) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<LossScalerOptions, std::string>> bad = {
      {LossScalerOptions().init_scale(0), "init_scale is 0"},
      {LossScalerOptions().init_scale(nan), "init_scale"},
      {LossScalerOptions().init_scale(infinity), "init_scale"},
      {LossScalerOptions().init_scale(8).max_scale(4), "init_scale is 8"},
      {LossScalerOptions().init_scale(8).min_scale(16), "init_scale is 8"},
      {LossScalerOptions().growth_factor(0.5),
       "LossScalerOptions.growth_factor must be >= 1 and < inf, is 0.5"},
      {LossScalerOptions().growth_factor(nan), "growth_factor must be"},
      {LossScalerOptions().backoff_factor(0), "backoff_factor must be > 0 and <= 1, is 0"},
      {LossScalerOptions().backoff_factor(1.5), "backoff_factor must be > 0 and <= 1, is 1.5"},
      {LossScalerOptions().growth_interval(0),
       "growth_interval must be >= 1 and < 2147483648, is 0"},
      {LossScalerOptions().growth_interval(int64_t{1} << 31), "growth_interval must be"},
      {LossScalerOptions().hysteresis(0), "hysteresis must be >= 1 and < 2147483648, is 0"},
      {LossScalerOptions().min_scale(0), "min_scale is 0"},
      {LossScalerOptions().min_scale(1e-60), "min_scale"},
      {LossScalerOptions().max_scale(1e60), "max_scale"},
      {LossScalerOptions().min_scale(4).max_scale(2), "max_scale is 2"},
      {LossScalerOptions().max_consecutive_skips(-1),
       "max_consecutive_skips must be >= 0 and < 2147483648, is -1"},
  };
  for (const auto& [options, part] : bad) {
    expect_error([&options = options] { options.validate(); }, part);
    expect_error([&options = options] { LossScaler scaler(options); }, part);
  }
}

TEST(LossScaler, FixedScaleNeverMovesButCountsSkips) {
  LossScaler scaler(LossScalerOptions::fixed(128).growth_interval(1));
  EXPECT_THAT(testing::scales(scaler, "0110"), ::testing::Each(128.0F));
  EXPECT_EQ(scaler.state().skipped, 2);
  EXPECT_EQ(scaler.state().iteration, 4);
  EXPECT_EQ(scaler.state().last_overflow, 2);
}

TEST(LossScaler, ScalesTheLossInFp32) {
  LossScaler scaler;
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    const auto loss = at::full({}, 10.0, dtype).requires_grad_(true);
    const auto scaled = scaler.scale(loss);
    EXPECT_EQ(scaled.scalar_type(), at::kFloat);
    EXPECT_EQ(scaled.dim(), 0);
    EXPECT_EQ(scaled.item<float>(), 655360.0F);
    scaled.backward();
    if (dtype != at::kHalf) {  // 65536 is no fp16 number
      EXPECT_EQ(loss.grad().item<double>(), 65536.0);
    }
  }
}

TEST(LossScaleRules, ScalingInHalfOverflows) {
  const auto loss = at::full({}, 10.0, at::kHalf);
  EXPECT_TRUE(at::isinf(loss * 65536.0).item<bool>());
  EXPECT_TRUE(at::isfinite(LossScaler().scale(loss)).item<bool>());
}

TEST(LossScaler, RefusesALossThatIsNoScalar) {
  LossScaler scaler;
  expect_error([&] { scaler.scale(at::ones({2})); }, "0-dimensional");
  expect_error([&] { scaler.scale(at::ones({}, at::kLong)); }, "0-dimensional");
  expect_error([&] { scaler.scale(at::Tensor()); }, "no tensor");
}

TEST(LossScaler, ScaleTensorFollowsUpdates) {
  LossScaler scaler;
  const auto view = scaler.scale_tensor();
  EXPECT_EQ(view.dim(), 0);
  scaler.update(true);
  EXPECT_EQ(view.item<float>(), 32768.0F);
}

TEST(LossScaler, TakesTheSharedFlagAsATensor) {
  LossScaler scaler;
  scaler.update(at::zeros({}));
  EXPECT_EQ(scaler.value(), 65536);
  scaler.update(at::ones({1}));
  EXPECT_EQ(scaler.value(), 32768);
  EXPECT_EQ(scaler.state().iteration, 2);
}

TEST(LossScaler, AFlagThatIsNanCountsAsOverflow) {
  LossScaler scaler;
  scaler.update(at::full({}, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_EQ(scaler.value(), 32768);
}

TEST(LossScaler, RefusesAFlagOfWrongKind) {
  LossScaler scaler;
  expect_error([&] { scaler.update(at::zeros({2})); }, "one fp32 element");
  expect_error([&] { scaler.update(at::zeros({}, at::kByte)); }, "one fp32 element");
  expect_error([&] { scaler.update(at::Tensor()); }, "one fp32 element");
  EXPECT_EQ(scaler.state().iteration, 0);
}

TEST(LossScaler, DeviceStateIsTheState) {
  LossScaler scaler;
  scaler.update(true);
  auto* state = static_cast<amp::ScalerState*>(state_bytes(scaler).mutable_data_ptr());
  EXPECT_EQ(state->scale, 32768.0F);
  EXPECT_EQ(state->skipped, 1);
  state->scale = 5.0F;
  EXPECT_EQ(scaler.value(), 5.0);
}

TEST(LossScaleRules, ResumedScalerContinuesLikeAnUnbrokenOne) {
  const std::string pattern = "0010100000110001000001010000";
  const auto deepspeed = LossScalerOptions::deepspeed().growth_interval(2);
  const auto megatron = LossScalerOptions::megatron().growth_interval(3);
  for (const auto& options : {deepspeed, megatron, LossScalerOptions::torch().growth_interval(4)}) {
    const auto unbroken = testing::scales(options, pattern);
    for (size_t cut = 0; cut <= pattern.size(); ++cut) {
      LossScaler first(options);
      auto values = testing::scales(first, pattern.substr(0, cut));
      LossScaler second(options);
      second.load(first.state());
      for (const float value : testing::scales(second, pattern.substr(cut))) {
        values.push_back(value);
      }
      EXPECT_EQ(values, unbroken) << "cut at " << cut;
    }
  }
}

TEST(LossScaler, StateHasEveryCounterAfterARoundTrip) {
  LossScaler first(LossScalerOptions::megatron().growth_interval(100));
  testing::scales(first, "00110100");
  LossScaler second;
  second.load(first.state());
  const auto a = first.state();
  const auto b = second.state();
  EXPECT_EQ(a.scale, b.scale);
  EXPECT_EQ(a.growth_tracker, 2);
  EXPECT_EQ(b.growth_tracker, 2);
  EXPECT_EQ(a.hysteresis_tracker, b.hysteresis_tracker);
  EXPECT_EQ(b.consecutive_skips, 0);
  EXPECT_EQ(b.iteration, 8);
  EXPECT_EQ(b.last_overflow, 5);
  EXPECT_EQ(b.skipped, 3);
}

TEST(LossScaler, RefusesAStateThatNoScalerHas) {
  LossScaler scaler;
  const auto refuses = [&](const std::function<void(amp::ScalerState&)>& spoil,
                           const std::string& part) {
    amp::ScalerState state;
    state.iteration = 10;
    spoil(state);
    expect_error([&] { scaler.load(state); }, part);
  };
  refuses([](auto& s) { s.scale = 0.0F; }, "scale is 0");
  refuses([](auto& s) { s.scale = -2.0F; }, "scale is -2");
  refuses([](auto& s) { s.scale = std::numeric_limits<float>::infinity(); }, "scale is inf");
  refuses([](auto& s) { s.scale = std::numeric_limits<float>::quiet_NaN(); }, "scale is");
  refuses([](auto& s) { s.growth_tracker = -1; }, "growth_tracker -1");
  refuses([](auto& s) { s.hysteresis_tracker = 0; }, "hysteresis_tracker 0");
  refuses([](auto& s) { s.consecutive_skips = -1; }, "consecutive_skips -1");
  refuses([](auto& s) { s.iteration = -1; }, "iteration -1");
  refuses([](auto& s) { s.last_overflow = 10; }, "last_overflow 10");
  refuses([](auto& s) { s.skipped = 11; }, "skipped 11");
  EXPECT_EQ(scaler.value(), 65536);
}

TEST(LossScaler, RefusesADeviceWithoutKernels) {
  expect_error([] { LossScaler scaler({}, c10::Device(c10::kMPS)); }, "no kernels for device");
}

}  // namespace
}  // namespace lockstep
