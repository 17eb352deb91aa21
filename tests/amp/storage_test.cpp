// How weights and moments are kept in fewer bits: exactness, bounds, means, reproducibility.
#include "spans.h"

#include <lockstep/amp/optimizers.h>
#include <lockstep/amp/update/brain_rounding.h>
#include <lockstep/amp/update/eight_bit.h>
#include <lockstep/amp/update/flat_span.h>
#include <lockstep/amp/update/storage_kernels.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

using amp::FlatSpan;
using amp::RandomBits;
using amp::StepState;
using testing::same_bits;

TEST(BrainRounding, AMasterComesBackFromWeightAndRestExactly) {
  const auto check = [](uint32_t bits) {
    const float master = amp::float_of(bits);
    const auto parts = amp::split_master(master);
    ASSERT_EQ(amp::bits_of(amp::join_master(parts.brain, parts.rest)), bits) << std::hex << bits;
    const bool tie = (bits & 0xffffU) == 0x8000U;
    if (std::isfinite(master) && !tie) {
      ASSERT_EQ(parts.brain, c10::BFloat16(master).x) << std::hex << bits;
    }
  };
  for (uint32_t low = 0; low < 0x10000U; ++low) {
    for (const uint32_t high : {0x0000U, 0x0001U, 0x3f80U, 0x3f81U, 0x7f7fU, 0xbf80U, 0x8000U}) {
      check(high << 16U | low);
    }
  }
  check(amp::bits_of(std::numeric_limits<float>::infinity()));
  const auto nan = amp::split_master(std::nanf(""));
  EXPECT_TRUE(std::isnan(amp::join_master(nan.brain, nan.rest)));
}

TEST(BrainRounding, RandomRoundingTakesANeighbourAndIsRightInTheMean) {
  const RandomBits random = RandomBits::of(7, 3);
  for (const float value : {1.0F + 0x1p-10F, -1.0F - 0x1p-9F, 3.0e-39F, 1.0F, 0.0F}) {
    double sum = 0.0;
    constexpr int kDraws = 200'000;
    const uint16_t down = static_cast<uint16_t>(amp::bits_of(value) >> 16U);
    for (int i = 0; i < kDraws; ++i) {
      const uint16_t brain = amp::brain_randomly(value, random(static_cast<uint32_t>(i)));
      ASSERT_TRUE(brain == down || brain == down + 1);
      sum += amp::float_of(static_cast<uint32_t>(brain) << 16U);
    }
    EXPECT_NEAR(sum / kDraws, value, std::abs(value) * 1e-4) << value;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(amp::brain_randomly(infinity, ~0U), 0x7f80U);
}

TEST(RandomBits, AreUniformAndDifferBetweenUpdatesStreamsAndElements) {
  std::vector<double> ones(32);
  double agree = 0.0;
  constexpr int kDraws = 100'000;
  const RandomBits a = RandomBits::of(1, 1);
  const RandomBits next_update = RandomBits::of(1, 2);
  const RandomBits other_stream = RandomBits::of(2, 1);
  double same_update = 0.0;
  double same_stream = 0.0;
  for (uint32_t i = 0; i < kDraws; ++i) {
    const uint32_t bits = a(i);
    for (size_t k = 0; k < 32; ++k) {
      ones[k] += bits >> k & 1U;
    }
    agree += __builtin_popcount(bits ^ a(i + 1));
    same_update += __builtin_popcount(bits ^ next_update(i));
    same_stream += __builtin_popcount(bits ^ other_stream(i));
  }
  for (const double count : ones) {
    EXPECT_NEAR(count / kDraws, 0.5, 0.01);
  }
  for (const double different : {agree, same_update, same_stream}) {
    EXPECT_NEAR(different / kDraws, 16.0, 0.1);
  }
}

TEST(EightBit, LevelsRiseAndAreWhatDecodingGives) {
  for (const int bits : {7, 8}) {
    const auto levels = amp::EightBitLevels::of({bits});
    EXPECT_EQ(levels.level[0], 0.0F);
    for (int code = 1; code <= levels.top; ++code) {
      ASSERT_GT(levels.level[code], levels.level[code - 1]);
      ASSERT_EQ(levels.encode(levels.level[code], 0.999F), code) << bits;
    }
    EXPECT_NEAR(levels.level[levels.top], 1.0, 0.008);
    EXPECT_NEAR(levels.level[1], bits == 7 ? 5.5e-7 : 5.5e-8, 1e-9);
  }
}

/// `values` coded and decoded.
template <typename Encode, typename Decode>
at::Tensor coded(const at::Tensor& values, Encode encode, Decode decode, int64_t update = 1) {
  const int64_t size = values.numel();
  std::vector<uint8_t> codes(static_cast<size_t>(size));
  std::vector<float> scales(static_cast<size_t>((size + 63) / 64));
  encode(codes.data(), scales.data(), values.const_data_ptr<float>(), size,
         RandomBits::of(5, update), 0);
  at::Tensor result = at::empty({size});
  decode(result.mutable_data_ptr<float>(), codes.data(), scales.data(), size);
  return result;
}

TEST(EightBit, ErrorsStayBelowAStepOfTheDecade) {
  const auto values = at::randn({64 * 500 + 17});
  const auto largest = [](const at::Tensor& t) {
    const auto padded = at::constant_pad_nd(t.abs(), {0, 47}).reshape({-1, 64});
    return padded.amax(1, true).expand_as(padded).reshape({-1}).slice(0, 0, t.numel());
  };
  const auto fraction = values.abs() / largest(values);
  const auto expect_bound = [&](const at::Tensor& errors, double bound) {
    EXPECT_LT(errors.index({fraction >= 0.11}).max().item<double>(), bound);
    for (double top = 0.1; top > 1e-4; top /= 10.0) {  // a decade's last gap reaches into the next
      bound /= 5.0;
      EXPECT_LT(errors.index({fraction < top}).max().item<double>(), 3.0 * bound) << top;
    }
  };
  const auto first = coded(values, amp::encode_signed, amp::decode_signed);
  expect_bound((first - values).abs() / largest(values), 1.0 / 70);
  const auto second = coded(values.square(), amp::encode_square, amp::decode_square).sqrt();
  expect_bound((second - values.abs()).abs() / largest(values), 1.0 / 141);
}

TEST(EightBit, TheLargestOfABlockIsKept) {
  const auto values = at::randn({64});
  const auto after = coded(values, amp::encode_signed, amp::decode_signed);
  const int64_t at = values.abs().argmax().item<int64_t>();
  EXPECT_NEAR(after[at].item<double>(), values[at].item<double>(), 1e-6);
}

TEST(EightBit, IsRightInTheMean) {
  const auto values = at::randn({256}) * at::pow(10.0, at::linspace(-4, 0, 256));
  auto sum = at::zeros({256}, at::kDouble);
  constexpr int kDraws = 4000;
  for (int update = 1; update <= kDraws; ++update) {
    sum += coded(values, amp::encode_signed, amp::decode_signed, update);
  }
  const auto largest = values.reshape({4, 64}).abs().amax(1, true).expand({4, 64}).reshape({-1});
  EXPECT_LT(((sum / kDraws - values).abs() / largest).max().item<double>(), 8e-4);
}

TEST(EightBit, ZerosStayZeroAndTinySquaresDoNotBecomeZero) {
  auto values = at::zeros({128});
  EXPECT_TRUE(at::equal(coded(values, amp::encode_signed, amp::decode_signed), values));
  EXPECT_TRUE(at::equal(coded(values, amp::encode_square, amp::decode_square), values));
  values[3] = 1.0;
  values[70] = 1e-30;
  values[5] = 1e-25;
  const auto after = coded(values, amp::encode_square, amp::decode_square);
  EXPECT_EQ(after.count_nonzero().item<int64_t>(), 3);
  EXPECT_GT(after[5].item<double>(), 0.0);
}

TEST(EightBit, ValuesThatAreNotFiniteSpoilNoNeighbour) {
  auto values = at::ones({64});
  values[1] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(
      at::isfinite(coded(values, amp::encode_square, amp::decode_square)).all().item<bool>());
  EXPECT_TRUE(
      at::isfinite(coded(values, amp::encode_signed, amp::decode_signed)).all().item<bool>());
}

TEST(StorageKernels, HaveTheSameBitsOnEveryInstructionSet) {
  const auto values = at::randn({1027});
  const auto results = [&] {
    std::vector<at::Tensor> all = {coded(values, amp::encode_signed, amp::decode_signed),
                                   coded(values.square(), amp::encode_square, amp::decode_square)};
    const auto brains = at::empty({1027}, at::kShort);
    const auto rests = at::empty({1027}, at::kShort);
    auto* bits = static_cast<uint16_t*>(brains.mutable_data_ptr());
    amp::round_randomly(bits, values.const_data_ptr<float>(), 1027, RandomBits::of(1, 1), 5);
    all.push_back(brains.clone());
    amp::split_masters(bits, rests.mutable_data_ptr<int16_t>(), values.const_data_ptr<float>(),
                       1027);
    const auto joined = at::empty({1027});
    amp::join_masters(joined.mutable_data_ptr<float>(), bits, rests.const_data_ptr<int16_t>(),
                      1027);
    EXPECT_TRUE(at::equal(joined, values));
    all.insert(all.end(), {brains, rests, joined});
    return all;
  };
  const auto expected = results();
  testing::for_each_target([&](const std::string& target) {
    const auto found = results();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(same_bits(found[i], expected[i])) << target << " " << i;
    }
  });
}

FlatSpan brain_span(int64_t size, const amp::UpdateRule& rule) {
  FlatSpan span;
  span.gradient = at::randn({size}).to(at::kBFloat16);
  span.weight = at::randn({size}).to(at::kBFloat16);
  amp::add_moments(span, rule);
  return span;
}

TEST(Update, ARemainderGivesTheBitsOfFp32Masters) {
  for (const OptimizerSpec* spec : std::initializer_list<const OptimizerSpec*>{
           new AdamW(1e-2), new LAMB(1e-2), new Lion(1e-3)}) {
    const std::unique_ptr<const OptimizerSpec> owner(spec);
    const auto rule = spec->rule(0);
    FlatSpan with_rest = brain_span(3001, *rule);
    FlatSpan with_master = testing::deep_copy(with_rest);
    with_master.master = with_rest.weight.to(at::kFloat);
    with_rest.remainder = at::zeros({3001}, at::kShort);
    StepState state;
    for (state.update = 1; state.update <= 50; ++state.update) {
      with_rest.gradient.normal_();
      with_master.gradient.copy_(with_rest.gradient);
      rule->apply(with_rest, &state);
      rule->apply(with_master, &state);
      at::Tensor joined = at::empty({3001});
      amp::join_masters(joined.mutable_data_ptr<float>(),
                        static_cast<const uint16_t*>(with_rest.weight.const_data_ptr()),
                        with_rest.remainder.const_data_ptr<int16_t>(), 3001);
      ASSERT_TRUE(at::equal(joined, with_master.master)) << spec->describe() << state.update;
      for (size_t k = 0; k < with_rest.moments.size(); ++k) {
        ASSERT_TRUE(same_bits(with_rest.moments[k], with_master.moments[k]));
      }
    }
    EXPECT_LE((with_rest.weight != with_master.weight).sum().item<int64_t>(), 1);  // a tie
  }
}

TEST(Update, RandomRoundingMovesABf16WeightWithoutMaster) {
  FlatSpan span;
  span.gradient = at::ones({4096}, at::kBFloat16);
  span.weight = at::ones({4096}, at::kBFloat16);
  span.rounds_randomly = true;
  const auto rule = SGD(1e-3).rule(0);
  StepState state;
  for (state.update = 1; state.update <= 1000; ++state.update) {
    rule->apply(span, &state);
  }
  const auto after = span.weight.to(at::kFloat);
  EXPECT_NEAR(after.mean().item<double>(), 0.0, 1e-3);  // to nearest it stays at 1: trap T12
  EXPECT_LT(after.abs().max().item<double>(), 0.3);
}

TEST(Update, NarrowFormsAreTheSameForAnySplitIntoSpans) {
  for (const MomentFormat format : {MomentFormat::bf16, MomentFormat::int8}) {
    const auto rule = AdamW(1e-2).moments(format).rule(0);
    FlatSpan whole = brain_span(1000, *rule);
    whole.rounds_randomly = true;
    whole.stream = 3;
    whole.average = whole.weight.to(at::kFloat);
    whole.average_rest = 0.1F;
    FlatSpan parts = testing::deep_copy(whole);
    StepState state;
    for (state.update = 1; state.update <= 4; ++state.update) {
      rule->apply(whole, &state);
      for (const auto& [begin, size] : {std::pair{0, 64}, {64, 640}, {704, 296}}) {
        rule->apply(amp::narrowed(parts, begin, size), &state);
      }
    }
    EXPECT_TRUE(same_bits(whole, parts));
    EXPECT_TRUE(same_bits(whole.average, parts.average));
  }
}

TEST(Update, NarrowMomentsTrainLikeFp32Ones) {
  // A quadratic bowl of 2048 elements with curvatures over three decades and noisy gradients.
  const auto curvature = at::pow(10.0, at::linspace(-2, 1, 2048));
  const auto run = [&](const OptimizerSpec& spec) {
    at::manual_seed(5);
    const auto rule = spec.rule(0);
    FlatSpan span;
    span.gradient = at::zeros({2048});
    span.master = at::ones({2048});
    amp::add_moments(span, *rule);
    StepState state;
    for (state.update = 1; state.update <= 600; ++state.update) {
      state.learning_rate_factor = 1.0F - static_cast<float>(state.update) / 601.0F;
      span.gradient.copy_(curvature * (span.master + 0.1 * at::randn({2048})));
      rule->apply(span, &state);
    }
    return (curvature * span.master.square()).mean().item<double>();
  };
  const double fp32 = run(AdamW(1e-2).weight_decay(0));
  const double bf16 = run(AdamW(1e-2).weight_decay(0).moments(MomentFormat::bf16));
  const double int8 = run(AdamW(1e-2).weight_decay(0).moments(MomentFormat::int8));
  RecordProperty("fp32", std::to_string(fp32));
  RecordProperty("bf16", std::to_string(bf16));
  RecordProperty("int8", std::to_string(int8));
  EXPECT_NEAR(bf16 / fp32, 1.0, 0.05) << fp32;
  EXPECT_NEAR(int8 / fp32, 1.0, 0.10) << fp32;
}

TEST(Update, TheAverageFollowsTheUpdatedWeight) {
  FlatSpan span = testing::fp32_span(3000, 0);
  span.average = span.master.clone();
  span.average_rest = 0.25F;
  at::Tensor expected = span.master.clone();
  const auto rule = SGD(0.1).rule(0);
  StepState state;
  for (state.update = 1; state.update <= 5; ++state.update) {
    rule->apply(span, &state);
    expected += 0.25 * (span.master - expected);
  }
  EXPECT_TRUE(at::equal(span.average, expected));
}

TEST(Update, GradientsAreClippedByValueAfterUnscaling) {
  FlatSpan span;
  span.gradient = at::tensor({40.0F, -400.0F, 4.0F, 0.0F});
  span.master = at::zeros({4});
  StepState state;
  state.gradient_factor = 0.25F;
  state.gradient_limit = 2.0F;
  SGD(1.0).rule(0)->apply(span, &state);
  EXPECT_TRUE(at::equal(span.master, at::tensor({-2.0F, 2.0F, -1.0F, 0.0F})));
}

TEST(Update, NarrowFormsThatDoNotFitAreNamed) {
  const auto rule = AdamW().rule(0);
  const auto refuses = [&](const std::function<void(FlatSpan&)>& spoil, const std::string& part) {
    FlatSpan span = brain_span(128, *rule);
    spoil(span);
    const StepState state;
    testing::expect_error([&] { rule->apply(span, &state); }, part);
  };
  refuses([](auto& s) { s.remainder = at::zeros({128}); }, "remainder is Float");
  refuses([](auto& s) { s.average = at::zeros({127}); }, "average has sizes [127]");
  refuses([](auto& s) { s.moments[0] = at::zeros({128}, at::kByte); }, "1 int8 moments");
  refuses([](auto& s) { s.moment_scales = {at::zeros({2})}; }, "found 1 moment_scales");
  refuses(
      [](auto& s) {
        s.remainder = at::zeros({128}, at::kShort);
        s.weight = s.weight.to(at::kHalf);
      },
      "belong to a BFloat16 weight");
  refuses(
      [](auto& s) {
        s.master = s.weight.to(at::kFloat);
        s.rounds_randomly = true;
      },
      "without a master");
  refuses(
      [](auto& s) {
        s.remainder = at::zeros({128}, at::kShort);
        s.rounds_randomly = true;
      },
      "is exact");
  FlatSpan coded = brain_span(128, *AdamW().moments(MomentFormat::int8).rule(0));
  testing::expect_error([&] { amp::narrowed(coded, 32, 64); }, "multiples of 64");
}

}  // namespace
}  // namespace lockstep
