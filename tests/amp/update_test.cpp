#include "spans.h"
#include "test_names.h"

#include <ATen/Parallel.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/loss_scaler_options.h>
#include <lockstep/amp/optimizers.h>

#include <cmath>
#include <memory>

namespace lockstep {
namespace {

using amp::FlatSpan;
using amp::StepState;

std::vector<std::shared_ptr<OptimizerSpec>> all_optimizers() {
  return {AdamW(1e-2).clone(), Adam(1e-2).weight_decay(0.1).clone(), SGD(0.1).clone(),
          SGD(0.1).momentum(0.9).nesterov(true).clone()};
}

FlatSpan half_span(int64_t size, int moments, at::ScalarType wire, at::ScalarType weight) {
  FlatSpan span = fp32_span(size, moments);
  span.gradient = span.gradient.to(wire);
  span.weight = span.master.to(weight);
  return span;
}

TEST(FusedUpdates, UnscalesByTheFactor) {
  FlatSpan span;
  span.gradient = full({33}, 4.0);
  span.master = ones({33});
  StepState state;
  state.gradient_factor = 0.25F;
  apply(*SGD(1.0).rule(0), span, state);
  EXPECT_TRUE(at::equal(span.master, zeros({33})));
}

TEST(FusedUpdates, ScaleOneIsPlainTraining) {
  amp::LossScalerOptions options = amp::LossScalerOptions::fixed(1.0);
  for (const auto& spec : all_optimizers()) {
    const auto rule = spec->fused()->rule(0);
    FlatSpan scaled = fp32_span(100, rule->moments());
    FlatSpan plain = testing::deep_copy(scaled);
    StepState state;
    apply(*rule, plain, state);
    scaled.gradient.mul_(options.init_scale());
    state.gradient_factor = amp::gradient_factor(options.init_scale());
    apply(*rule, scaled, state);
    EXPECT_TRUE(same_bits(scaled, plain)) << spec->describe();
  }
}

TEST(FusedUpdates, SkipWritesNothing) {
  for (const auto& spec : all_optimizers()) {
    const auto rule = spec->fused()->rule(0);
    FlatSpan span = half_span(3000, rule->moments(), at::kHalf, at::kHalf);
    for (auto& moment : span.moments) {
      moment.normal_();
    }
    const FlatSpan before = testing::deep_copy(span);
    StepState state;
    state.skip = true;
    apply(*rule, span, state);
    EXPECT_TRUE(same_bits(span, before)) << spec->describe();
    state.skip = false;
    apply(*rule, span, state);
    EXPECT_FALSE(same_bits(span, before)) << spec->describe();
  }
}

TEST(FusedUpdates, HalfGradientsOfZeroAndTinyValues) {
  FlatSpan half = fp32_span(256, 2);
  const auto values = zeros({256});
  values.slice(0, 0, 64).fill_(1e-7);
  values.slice(0, 64, 128).fill_(1e-3);
  half.gradient = values.to(at::kHalf);
  FlatSpan full = testing::deep_copy(half);
  full.gradient = half.gradient.to(at::kFloat);
  half.weight = half.master.to(at::kHalf);
  const at::Tensor start = half.master.clone();
  const auto rule = Adam(1e-3).rule(0);
  StepState state;
  for (state.update = 1; state.update <= 10; ++state.update) {
    apply(*rule, half, state);
    apply(*rule, full, state);
  }
  EXPECT_TRUE(at::isfinite(half.master).all().item<bool>());
  EXPECT_TRUE(at::equal(half.master.slice(0, 128), start.slice(0, 128)));
  EXPECT_TRUE(same_bits(half.master, full.master));
}

TEST(FusedUpdates, AThousandSmallUpdatesMoveABf16Weight) {
  FlatSpan with_master;
  with_master.gradient = ones({16}, at::kBFloat16);
  with_master.master = ones({16});
  with_master.weight = ones({16}, at::kBFloat16);
  const auto rule = SGD(1e-3).rule(0);
  const StepState state;
  auto plain = ones({16}, at::kBFloat16);
  for (int i = 0; i < 1000; ++i) {
    apply(*rule, with_master, state);
    plain.sub_(full({16}, 1e-3, at::kBFloat16));
  }
  EXPECT_LT(with_master.weight.to(at::kFloat).abs().max().item<float>(), 1e-4);
  EXPECT_TRUE(at::equal(plain, ones({16}, at::kBFloat16)));  // the update is lost
}

TEST(FusedUpdates, ClipAfterUnscalingOnly) {
  const auto gradient = tensor({3.0F, 4.0F});
  const double scale = 65536.0;
  const auto scaled = gradient * scale;
  const auto wrong = scaled / scaled.norm() / scale;
  EXPECT_NEAR(wrong.norm().item<double>(), 1.0 / scale, 1e-9);
  FlatSpan span;
  span.gradient = scaled;
  span.master = zeros({2});
  StepState state;
  const double norm = scaled.norm().item<double>() / scale;
  state.gradient_factor = amp::gradient_factor(scale, 1.0 / norm);
  apply(*SGD(1.0).rule(0), span, state);
  EXPECT_NEAR(span.master.norm().item<double>(), 1.0, 1e-6);
}

TEST(FusedUpdates, HalfAdamTurnsZeroGradientsIntoNan) {
  const auto weight = ones({4}, at::kHalf);
  const auto gradient = zeros({4}, at::kHalf);
  const auto denominator = gradient.square().sqrt() + full({4}, 1e-8, at::kHalf);
  EXPECT_TRUE(at::isnan(weight - gradient / denominator).all().item<bool>());
  FlatSpan span;  // O3: half weight, fp32 maths
  span.gradient = gradient;
  span.weight = weight.clone();
  span.moments = {zeros({4}), zeros({4})};
  const StepState state;
  apply(*Adam(1e-3).rule(0), span, state);
  EXPECT_TRUE(at::equal(span.weight, weight));
}

TEST(FusedUpdates, Fp16WeightsWithoutMasterStall) {
  FlatSpan master = fp32_span(4, 0);
  master.master.fill_(1.0);
  master.gradient = ones({4}, at::kHalf);
  FlatSpan half;
  half.gradient = master.gradient;
  half.weight = ones({4}, at::kHalf);
  master.weight = half.weight.clone();
  const auto rule = SGD(2e-4).rule(0);
  const StepState state;
  for (int i = 0; i < 100; ++i) {
    apply(*rule, master, state);
    apply(*rule, half, state);
  }
  EXPECT_TRUE(at::equal(half.weight, ones({4}, at::kHalf)));
  EXPECT_NEAR(master.weight[0].item<float>(), 0.98, 1e-3);
}

TEST(Update, ModelWeightIsTheRoundedMaster) {
  for (const auto& spec : all_optimizers()) {
    const auto rule = spec->fused()->rule(0);
    for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat}) {
      FlatSpan span = half_span(2500, rule->moments(), at::kHalf, dtype);
      const StepState state;
      apply(*rule, span, state);
      EXPECT_TRUE(at::equal(span.weight, span.master.to(dtype))) << spec->describe() << dtype;
    }
  }
}

TEST(Update, WithoutMasterTheHalfWeightMovesInFp32Maths) {
  for (const auto& spec : all_optimizers()) {
    const auto rule = spec->fused()->rule(0);
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      FlatSpan half = half_span(2500, rule->moments(), dtype, dtype);
      half.master = at::Tensor();
      FlatSpan full = testing::deep_copy(half);
      full.master = half.weight.to(at::kFloat);
      full.weight = at::Tensor();
      const StepState state;
      apply(*rule, half, state);
      apply(*rule, full, state);
      EXPECT_TRUE(at::equal(half.weight, full.master.to(dtype))) << spec->describe() << dtype;
      EXPECT_TRUE(same_bits(half.moments.empty() ? half.weight : half.moments[0],
                            full.moments.empty() ? half.weight : full.moments[0]));
    }
  }
}

TEST(Update, Fp32WeightWithoutMasterIsUpdatedInPlace) {
  FlatSpan span = fp32_span(70, 2);
  FlatSpan as_weight = testing::deep_copy(span);
  std::swap(as_weight.master, as_weight.weight);
  const StepState state;
  const auto rule = AdamW().rule(0);
  apply(*rule, span, state);
  apply(*rule, as_weight, state);
  EXPECT_TRUE(same_bits(span.master, as_weight.weight));
}

TEST(Update, HalfWireGivesTheUpdateOfItsExactValues) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    FlatSpan half = fp32_span(5000, 2);
    half.gradient = half.gradient.to(dtype);
    FlatSpan full = testing::deep_copy(half);
    full.gradient = half.gradient.to(at::kFloat);
    const StepState state;
    apply(*AdamW().rule(0), half, state);
    apply(*AdamW().rule(0), full, state);
    EXPECT_TRUE(same_bits(half, full)) << dtype;
  }
}

/// Three updates of a copy of `start`.
FlatSpan trained(const amp::UpdateRule& rule, const FlatSpan& start) {
  FlatSpan span = testing::deep_copy(start);
  StepState state;
  state.gradient_factor = 0.37F;
  for (state.update = 1; state.update <= 3; ++state.update) {
    apply(rule, span, state);
  }
  return span;
}

TEST(Update, HasTheSameBitsOnEveryInstructionSet) {
  for (const auto& spec : all_optimizers()) {
    const auto rule = spec->fused()->rule(0);
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      const FlatSpan start = half_span(4099, rule->moments(), dtype, dtype);
      const FlatSpan expected = trained(*rule, start);
      testing::for_each_target([&](const std::string& target) {
        EXPECT_TRUE(same_bits(trained(*rule, start), expected))
            << target << " " << spec->describe() << " " << dtype;
      });
    }
  }
}

TEST(Update, HasTheSameBitsForEveryNumberOfThreads) {
  const FlatSpan start = half_span(300007, 2, at::kHalf, at::kHalf);
  const int threads = at::get_num_threads();
  for (const auto& rule : {AdamW().rule(0), LAMB().rule(0)}) {
    at::set_num_threads(1);
    const FlatSpan expected = trained(*rule, start);
    for (const int count : {2, 3}) {
      at::set_num_threads(count);
      EXPECT_TRUE(same_bits(trained(*rule, start), expected)) << count << " threads";
    }
  }
  at::set_num_threads(threads);
}

TEST(Update, AnySplitIntoSpansGivesTheSameBits) {
  const auto rule = Adam().rule(0);
  const FlatSpan start = half_span(1000, 2, at::kHalf, at::kHalf);
  const FlatSpan whole = trained(*rule, start);
  FlatSpan parts = testing::deep_copy(start);
  for (const auto& [begin, end] : {std::pair{0, 16}, {16, 528}, {528, 1000}}) {
    const FlatSpan span = amp::narrowed(parts, begin, end - begin);
    StepState state;
    state.gradient_factor = 0.37F;
    for (state.update = 1; state.update <= 3; ++state.update) {
      apply(*rule, span, state);
    }
  }
  EXPECT_TRUE(same_bits(parts, whole));
}

TEST(Update, PaddingOfZerosStaysZero) {
  for (const auto& spec : all_optimizers()) {
    const auto rule = spec->fused()->rule(0);
    FlatSpan span = half_span(64, rule->moments(), at::kHalf, at::kHalf);
    span.master.slice(0, 50).zero_();
    span.weight.slice(0, 50).zero_();
    span.gradient.slice(0, 50).zero_();
    const FlatSpan after = trained(*rule, span);
    EXPECT_EQ(after.master.slice(0, 50).count_nonzero().item<int64_t>(), 0) << spec->describe();
    EXPECT_EQ(after.weight.slice(0, 50).count_nonzero().item<int64_t>(), 0);
    EXPECT_TRUE(at::isfinite(after.master).all().item<bool>());
  }
}

TEST(Update, LearningRateFactorScalesTheStep) {
  for (const auto& [full, halved] :
       {std::pair<std::shared_ptr<OptimizerSpec>, std::shared_ptr<OptimizerSpec>>{
            AdamW(1e-2).clone(), AdamW(5e-3).clone()},
        {SGD(0.1).momentum(0.9).clone(), SGD(0.05).momentum(0.9).clone()}}) {
    FlatSpan a = fp32_span(100, full->fused()->rule(0)->moments());
    FlatSpan b = testing::deep_copy(a);
    StepState state;
    apply(*halved->fused()->rule(0), b, state);
    state.learning_rate_factor = 0.5F;
    apply(*full->fused()->rule(0), a, state);
    EXPECT_TRUE(same_bits(a, b)) << full->describe();
  }
}

TEST(Update, MomentsInHostMemoryBeginAtDifferentPlacesOfAPageAndAtCacheLines) {
  for (const MomentFormat format : {MomentFormat::fp32, MomentFormat::bf16}) {
    for (const int64_t size : {int64_t{0}, int64_t{100000}}) {
      FlatSpan span;
      span.gradient = at::zeros({size});
      span.master = at::zeros({size});
      amp::add_moments(span, *AdamW(1e-3).moments(format).rule(0));
      ASSERT_EQ(span.moments.size(), 2);
      std::vector<int64_t> places{0};  // of the gradient and the master
      for (const at::Tensor& moment : span.moments) {
        EXPECT_TRUE(at::equal(moment, at::zeros({size}, moment.scalar_type())));
        EXPECT_TRUE(moment.is_contiguous());
        places.push_back(moment.storage_offset() * moment.element_size());
        EXPECT_EQ(places.back() % 64, 0);
        EXPECT_GE(places.back() - places.end()[-2], 1024);
        EXPECT_LT(places.back(), 4096);
      }
    }
  }
}

TEST(Update, ErrorsNameTheArray) {
  const auto rule = AdamW().rule(0);
  const auto refuses = [&](const std::function<void(FlatSpan&)>& spoil, const std::string& part) {
    FlatSpan span = half_span(32, 2, at::kHalf, at::kHalf);
    spoil(span);
    const FlatSpan before = span;
    const StepState state;
    expect_error([&] { apply(*rule, span, state); }, part);
  };
  refuses([](auto& s) { s.gradient = at::Tensor(); }, "gradient is undefined");
  refuses([](auto& s) { s.gradient = ones({32}, at::kDouble); }, "gradient is Double");
  refuses([](auto& s) { s.gradient = ones({64}).slice(0, 0, 64, 2); }, "gradient has");
  refuses([](auto& s) { s.master = s.master.slice(0, 1); }, "master has sizes [31]");
  refuses([](auto& s) { s.master = s.master.to(at::kHalf); }, "master is Half");
  refuses([](auto& s) { s.weight = ones({32}, at::kDouble); }, "weight is Double");
  refuses([](auto& s) { s.weight = s.weight.slice(0, 2); }, "weight has sizes [30]");
  refuses([](auto& s) { s.master = s.weight = at::Tensor(); }, "neither master nor weight");
  refuses([](auto& s) { s.moments.pop_back(); }, "found 1 moments, this optimizer has 2");
  refuses([](auto& s) { s.moments[1] = ones({32}, at::kHalf); }, "moment is Half");
}

}  // namespace
}  // namespace lockstep
