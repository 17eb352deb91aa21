// How weights and moments are kept in fewer bits: exactness, bounds, means, reproducibility.
#include "spans.h"
#include "test_names.h"

#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/impl/storage_kernels.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/amp/update/brain_rounding.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

using amp::FlatSpan;
using amp::RandomBits;
using amp::StepState;

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
    double sums[2] = {};  // of the low halves, and of the high ones
    constexpr int kDraws = 200'000;
    const uint16_t down = static_cast<uint16_t>(amp::bits_of(value) >> 16U);
    for (int i = 0; i < kDraws; ++i) {
      const uint32_t draw = random(static_cast<uint32_t>(i));
      for (int half = 0; half < 2; ++half) {
        const uint16_t brain = amp::brain_randomly(value, draw >> (16 * half));
        ASSERT_TRUE(brain == down || brain == down + 1);
        sums[half] += amp::float_of(static_cast<uint32_t>(brain) << 16U);
      }
    }
    for (const double sum : sums) {
      EXPECT_NEAR(sum / kDraws, value, std::abs(value) * 1e-4) << value;
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(amp::brain_randomly(infinity, ~0U), 0x7f80U);
}

TEST(RandomBits, AreUniformInBothHalvesAndDifferBetweenThemUpdatesStreamsAndDraws) {
  std::vector<double> ones(32);
  std::vector<double> buckets(2 * 256);  // of the highest 8 bits of each half
  double same_draw = 0.0;
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
    ++buckets[bits >> 8U & 0xffU];
    ++buckets[256 + (bits >> 24U)];
    same_draw += 2 * __builtin_popcount((bits ^ bits >> 16U) & 0xffffU);
    agree += __builtin_popcount(bits ^ a(i + 1));
    same_update += __builtin_popcount(bits ^ next_update(i));
    same_stream += __builtin_popcount(bits ^ other_stream(i));
  }
  for (const double count : ones) {
    EXPECT_NEAR(count / kDraws, 0.5, 0.01);
  }
  for (const double count : buckets) {
    EXPECT_NEAR(count * 256 / kDraws, 1.0, 0.3);  // 6 standard deviations
  }
  for (const double different : {same_draw, agree, same_update, same_stream}) {
    EXPECT_NEAR(different / kDraws, 16.0, 0.1);
  }
}

/// The random bits of an element, written out.
uint32_t bits_of_element(uint64_t stream, uint64_t update, int64_t element) {
  const auto scrambled = [](uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  };
  const auto mixed = [](uint32_t x) {
    x = (x ^ (x >> 16U)) * 0x7feb352dU;
    x = (x ^ (x >> 15U)) * 0x846ca68bU;
    return x ^ (x >> 16U);
  };
  const uint64_t key = scrambled(scrambled(stream) + update);
  const auto pair = static_cast<uint32_t>(element / 2);
  const uint32_t draw =
      mixed(mixed(pair + static_cast<uint32_t>(key)) ^ static_cast<uint32_t>(key >> 32U));
  return element % 2 == 0 ? draw & 0xffffU : draw >> 16U;
}

TEST(StorageKernels, RoundRandomlyByAFormulaOfStreamUpdateAndElement) {
  const at::Tensor values = at::randn({1027});
  const auto* const from = values.const_data_ptr<float>();
  testing::for_each_target([&](const std::string& target) {
    for (const int64_t first : {int64_t{0}, int64_t{2}, int64_t{642}, (int64_t{1} << 33) - 6}) {
      for (const int64_t size : {1, 2, 3, 255, 256, 257, 1027}) {
        std::vector<uint16_t> found(static_cast<size_t>(size) + 1, 7);
        amp::round_randomly(found.data(), from, size, RandomBits::of(9, 4), first);
        for (int64_t i = 0; i < size; ++i) {
          ASSERT_EQ(found[static_cast<size_t>(i)],
                    (amp::bits_of(from[i]) + bits_of_element(9, 4, first + i)) >> 16U)
              << target << ", first " << first << ", size " << size << ", " << i;
        }
        ASSERT_EQ(found.back(), 7) << target << ", size " << size;
      }
    }
  });
}

TEST(StorageKernels, HaveTheSameBitsOnEveryInstructionSet) {
  const auto values = at::randn({1027});
  const auto results = [&] {
    std::vector<at::Tensor> all;
    const auto brains = at::empty({1027}, at::kShort);
    const auto rests = at::empty({1027}, at::kShort);
    auto* bits = static_cast<uint16_t*>(brains.mutable_data_ptr());
    amp::round_randomly(bits, values.const_data_ptr<float>(), 1027, RandomBits::of(1, 1), 6);
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
  for (const FusedOptimizer* spec : std::initializer_list<const FusedOptimizer*>{
           new AdamW(1e-2), new LAMB(1e-2), new Lion(1e-3)}) {
    const std::unique_ptr<const FusedOptimizer> owner(spec);
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
  EXPECT_NEAR(after.mean().item<double>(), 0.0, 1e-3);  // to nearest it stays at 1
  EXPECT_LT(after.abs().max().item<double>(), 0.3);
}

TEST(Update, NarrowFormsAreTheSameForAnySplitIntoSpans) {
  const auto rule = AdamW(1e-2).moments(MomentFormat::bf16).rule(0);
  FlatSpan whole = brain_span(1000, *rule);
  whole.rounds_randomly = true;
  whole.stream = 3;
  whole.average = whole.weight.to(at::kFloat);
  whole.average_rest = 0.1F;
  FlatSpan parts = testing::deep_copy(whole);
  StepState state;
  for (state.update = 1; state.update <= 4; ++state.update) {
    rule->apply(whole, &state);
    for (const auto& [begin, size] : {std::pair{0, 64}, {64, 610}, {674, 326}}) {
      rule->apply(amp::narrowed(parts, begin, size), &state);
    }
  }
  EXPECT_TRUE(same_bits(whole, parts));
}

TEST(Update, NarrowMomentsTrainLikeFp32Ones) {
  // A quadratic bowl of 2048 elements with curvatures over three decades and noisy gradients.
  const auto curvature = at::pow(10.0, at::linspace(-2, 1, 2048));
  const auto run = [&](const FusedOptimizer& spec) {
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
  RecordProperty("fp32", std::to_string(fp32));
  RecordProperty("bf16", std::to_string(bf16));
  EXPECT_NEAR(bf16 / fp32, 1.0, 0.05) << fp32;
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
  refuses([](auto& s) { s.moments[0] = at::zeros({128}, at::kByte); }, "moment is Byte");
  refuses([](auto& s) { s.first_element = 33; }, "first_element is 33, it must be even");
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
}

}  // namespace
}  // namespace lockstep
