#include <gtest/gtest.h>
#include <lockstep/amp/schedule.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <limits>
#include <string>
#include <vector>

namespace lockstep {
namespace {

std::vector<float> factors(const Schedule& schedule, int64_t count) {
  std::vector<float> values;
  for (int64_t update = 0; update < count; ++update) {
    values.push_back(schedule.factor(update));
  }
  return values;
}

void expect_factors(const Schedule& schedule, const std::vector<float>& expected) {
  const std::vector<float> found = factors(schedule, static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-6F) << "at update " << i;
  }
}

template <typename Make>
void expect_error_naming(const std::string& field, Make make) {
  try {
    make();
    ADD_FAILURE() << "accepted a bad " << field;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(": " + field + " is "), std::string::npos)
        << error.what();
    EXPECT_EQ(error.code(), ExitCode::usage);
  }
}

TEST(Schedule, ConstantIsOneForEver) {
  expect_factors(Constant(), {1, 1, 1});
  EXPECT_EQ(Constant().factor(std::numeric_limits<int64_t>::max()), 1.0F);
}

// Expected values: torch 2.11, LinearLR(start_factor=1, end_factor=0.25, total_iters=5).
TEST(Schedule, LinearEqualsTorchLinearLR) {
  expect_factors(WarmupLinear(0, 5, 0.25), {1.0F, 0.85F, 0.7F, 0.55F, 0.4F, 0.25F, 0.25F});
}

// Expected values: torch 2.11, CosineAnnealingLR(T_max=6, eta_min=0.1 of the rate).
TEST(Schedule, CosineEqualsTorchCosineAnnealingLR) {
  expect_factors(WarmupCosine(0, 6, 0.1),
                 {1.0F, 0.9397114F, 0.775F, 0.55F, 0.325F, 0.1602886F, 0.1F});
}

TEST(Schedule, WarmupRisesToOneAndTheFirstUpdateIsNotLost) {
  expect_factors(WarmupLinear(4, 8), {0.25F, 0.5F, 0.75F, 1.0F, 1.0F, 0.75F, 0.5F, 0.25F, 0.0F});
  expect_factors(WarmupCosine(2, 4), {0.5F, 1.0F, 1.0F, 0.5F, 0.0F});
}

TEST(Schedule, StaysAtTheFloorAfterTheEnd) {
  expect_factors(WarmupCosine(0, 2, 0.25), {1.0F, 0.625F, 0.25F, 0.25F, 0.25F});
  EXPECT_NEAR(WarmupLinear(1, 3, 0.5).factor(int64_t{1} << 40), 0.5F, 1e-6F);
}

// Expected values: torch 2.11, StepLR(step_size=3, gamma=0.5).
TEST(Schedule, StepDecayEqualsTorchStepLR) {
  expect_factors(StepDecay(3, 0.5), {1, 1, 1, 0.5F, 0.5F, 0.5F, 0.25F, 0.25F});
}

// Expected values: torch 2.11, OneCycleLR(max_lr=1, total_steps=10).
TEST(Schedule, OneCycleEqualsTorchOneCycleLR) {
  expect_factors(OneCycle(10), {0.04F, 0.52F, 1.0F, 0.95048463F, 0.81174565F, 0.61126202F,
                                0.38874198F, 0.18825835F, 0.04951937F, 4e-6F});
}

// Expected values: torch 2.11, total_steps=7, pct_start=0.45, div_factor=10, final_div_factor=100:
// the peak lies between two updates.
TEST(Schedule, OneCycleEqualsTorchWhenThePeakLiesBetweenUpdates) {
  expect_factors(OneCycle(7, 0.45, 10, 100),
                 {0.1F, 0.50078296F, 0.98923414F, 0.88459079F, 0.53105025F, 0.15827171F, 0.001F});
}

// Expected values: torch 2.11, total_steps=5, pct_start=0.
TEST(Schedule, OneCycleEqualsTorchWithoutRise) {
  expect_factors(OneCycle(5, 0.0), {0.90450888F, 0.65450988F, 0.34549412F, 0.09549512F, 4e-6F});
}

TEST(Schedule, OneCycleStaysAtItsEnd) {
  EXPECT_NEAR(OneCycle(10).factor(9), 4e-6F, 1e-9F);
  EXPECT_EQ(OneCycle(10).factor(1000), OneCycle(10).factor(9));
}

// Expected values: torch 2.11, MultiStepLR(milestones=[2, 3, 6], gamma=0.5).
TEST(Schedule, MultiStepDecayEqualsTorchMultiStepLR) {
  expect_factors(MultiStepDecay({2, 3, 6}, 0.5),
                 {1, 1, 0.5F, 0.25F, 0.25F, 0.25F, 0.125F, 0.125F, 0.125F});
  expect_factors(MultiStepDecay({1, 1}, 0.5), {1, 0.25F});
}

// Expected values: torch 2.11, SequentialLR of LinearLR(0.25, 1, total_iters=3), ConstantLR(1) and
// LinearLR(1, 0.1, total_iters=4) with milestones 3 and 6.
TEST(Schedule, WarmupStableDecayEqualsTorchsSchedulersInSequence) {
  expect_factors(WarmupStableDecay(4, 4, 10, 0.1),
                 {0.25F, 0.5F, 0.75F, 1.0F, 1.0F, 1.0F, 1.0F, 0.775F, 0.55F, 0.325F, 0.1F, 0.1F});
  EXPECT_EQ(factors(WarmupStableDecay(2, 6, 8, 0.1), 12), factors(WarmupLinear(2, 8, 0.1), 12));
}

TEST(Schedule, MayBeAnyFunction) {
  expect_factors(
      ScheduleFunction([](int64_t updates) { return 1.0 / static_cast<double>(1 + updates); }),
      {1, 0.5F, 1.0F / 3.0F});
  for (const double bad :
       {-0.5, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const ScheduleFunction schedule([bad](int64_t updates) { return updates < 3 ? 1.0 : bad; });
    EXPECT_EQ(schedule.factor(2), 1.0F);
    expect_error_naming("the factor after 3 updates", [&] { schedule.factor(3); });
  }
  expect_error_naming("factor", [] { ScheduleFunction(nullptr); });
}

TEST(Schedule, DescribesItself) {
  EXPECT_EQ(Constant().describe(), "Constant");
  EXPECT_EQ(WarmupCosine(500, 20000).describe(), "WarmupCosine 500 20000 0");
  EXPECT_EQ(WarmupLinear(1, 3, 0.5).describe(), "WarmupLinear 1 3 0.5");
  EXPECT_EQ(WarmupStableDecay(1, 2, 9, 0.5).describe(), "WarmupStableDecay 1 2 9 0.5");
  EXPECT_EQ(StepDecay(3, 0.5).describe(), "StepDecay 3 0.5");
  EXPECT_EQ(MultiStepDecay({2, 5}, 0.5).describe(), "MultiStepDecay [2, 5] 0.5");
  EXPECT_EQ(OneCycle(10, 0.25, 2, 4).describe(), "OneCycle 10 1.5 0.5 0.125");
  EXPECT_EQ(ScheduleFunction([](int64_t) { return 1.0; }).describe(), "ScheduleFunction");
}

TEST(Schedule, SurvivesBeingStoredAsThePlainType) {
  const Schedule stored = OneCycle(10);
  EXPECT_EQ(factors(stored, 12), factors(OneCycle(10), 12));
}

TEST(Schedule, RefusesBadArgumentsByName) {
  expect_error_naming("warmup", [] { WarmupLinear(-1, 10); });
  expect_error_naming("total", [] { WarmupLinear(10, 10); });
  expect_error_naming("floor", [] { WarmupLinear(1, 10, -0.1); });
  expect_error_naming("warmup", [] { WarmupCosine(-1, 10); });
  expect_error_naming("total", [] { WarmupCosine(10, 9); });
  expect_error_naming("floor", [] { WarmupCosine(1, 10, 1.5); });
  expect_error_naming("every", [] { StepDecay(0); });
  expect_error_naming("gamma", [] { StepDecay(10, 0.0); });
  expect_error_naming("warmup", [] { WarmupStableDecay(-1, 2, 10); });
  expect_error_naming("decay", [] { WarmupStableDecay(4, 7, 10); });
  expect_error_naming("decay", [] { WarmupStableDecay(4, 0, 10); });
  expect_error_naming("milestones", [] { MultiStepDecay({}); });
  expect_error_naming("milestones", [] { MultiStepDecay(std::vector<int64_t>(17, 1)); });
  expect_error_naming("milestones", [] { MultiStepDecay({3, 2}); });
  expect_error_naming("milestones", [] { MultiStepDecay({0, 2}); });
  expect_error_naming("gamma", [] { MultiStepDecay({2}, 1.5); });
  expect_error_naming("total", [] { OneCycle(1); });
  expect_error_naming("pct_start", [] { OneCycle(10, 1.0); });
  expect_error_naming("div_factor", [] { OneCycle(10, 0.3, 0.5); });
  expect_error_naming("final_div_factor",
                      [] { OneCycle(10, 0.3, 25, std::numeric_limits<double>::quiet_NaN()); });
}

}  // namespace
}  // namespace lockstep
