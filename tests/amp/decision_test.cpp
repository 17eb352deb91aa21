// What is decided about an update, from what all ranks have shared.
#include <gtest/gtest.h>
#include <lockstep/amp/impl/decision.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/amp/schedule.h>

#include <cmath>
#include <limits>

namespace lockstep::amp {
namespace {

DecisionRule rule_of(const LossScalerOptions& options, double clip_norm) {
  return {scaler_rule(options), clip_norm, 7.0F, WarmupLinear(4, 10)};
}

struct Windows {
  DecisionRule rule = rule_of(LossScalerOptions().init_scale(8).growth_interval(2), 1.0);
  ScalerState scaler = initial_state(LossScalerOptions().init_scale(8));
  Decision decision;

  const Decision& window(double sum_squares, double not_finite, double failed = 0.0) {
    decision.totals = {sum_squares, not_finite};
    decision.failed = failed;
    decide_in_place(&decision, &scaler, rule, c10::kCPU);
    conclude_in_place(&decision, &scaler, rule, c10::kCPU);
    return decision;
  }
};

TEST(Decision, UnscalesThenClipsByTheNormOfTheUnscaledGradient) {
  Windows run;
  const Decision& decision = run.window(/*sum_squares=*/64.0 * 25.0, 0);
  EXPECT_FALSE(decision.step.skip);
  EXPECT_EQ(decision.grad_norm, 5.0);
  EXPECT_EQ(decision.step.gradient_factor, static_cast<float>(1.0 / 8.0 * (1.0 / (5.0 + 1e-6))));
  EXPECT_EQ(decision.step.gradient_limit, 7.0F);
}

TEST(Decision, LeavesASmallGradientAndAnUnlimitedOneUnclipped) {
  Windows run;
  EXPECT_EQ(run.window(64.0 * 0.25, 0).step.gradient_factor, 1.0F / 8.0F);
  Windows unlimited;
  unlimited.rule.clip_norm = std::numeric_limits<double>::infinity();
  EXPECT_EQ(unlimited.window(1e30, 0).step.gradient_factor, 1.0F / 8.0F);
}

TEST(Decision, CountsUpdatesAndFollowsTheScheduleButForSkips) {
  Windows run;
  const ScheduleFormula schedule = run.rule.schedule;
  int64_t updates = 0;
  for (const bool overflow : {false, true, true, false, false, true, false}) {
    const Decision& decision = run.window(1.0, overflow ? 2.0 : 0.0);
    EXPECT_EQ(decision.skipped, overflow);
    EXPECT_EQ(decision.step.skip, overflow);
    EXPECT_EQ(std::isnan(decision.grad_norm), overflow);
    EXPECT_EQ(decision.step.learning_rate_factor, schedule.factor(updates));
    EXPECT_EQ(decision.step.update, updates + 1);
    updates += overflow ? 0 : 1;
    EXPECT_EQ(decision.updates, updates);
  }
}

TEST(Decision, MovesTheScaleAsTheLossScalerDoes) {
  Windows run;
  LossScaler scaler(LossScalerOptions().init_scale(8).growth_interval(2));
  for (const bool overflow : {false, true, false, false, false, false, true, true}) {
    const double before = scaler.value();
    const Decision& decision = run.window(1.0, overflow ? 1.0 : 0.0);
    scaler.update(overflow);
    EXPECT_EQ(decision.scale, before);
    EXPECT_EQ(decision.scaler.scale, scaler.value());
    EXPECT_EQ(decision.scaler.skipped, scaler.state().skipped);
  }
}

TEST(Decision, AFailedWindowIsSkippedAndLeavesScaleAndCountersAlone) {
  Windows run;
  run.window(1.0, 0);
  const ScalerState before = run.scaler;
  const Decision& decision = run.window(1.0, 1.0, /*failed=*/1.0);
  EXPECT_TRUE(decision.step.skip);
  EXPECT_EQ(decision.updates, 1);
  EXPECT_EQ(run.scaler.scale, before.scale);
  EXPECT_EQ(run.scaler.iteration, before.iteration);
  EXPECT_EQ(run.scaler.skipped, before.skipped);
}

}  // namespace
}  // namespace lockstep::amp
