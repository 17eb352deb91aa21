// Plans of the planner as they are measured, run, written and read.
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>
#include <lockstep/checkpointing/activation/recomputing.h>
#include <lockstep/collectives/exceptions.h>

#include <algorithm>
#include <cstdio>

#include "activation_trial.h"

namespace lockstep::testing {
namespace {

TEST(PlanCheckpoints, TextIsReadBackAndWrongTextIsRefused) {
  const std::string text = "(0 1 (2 3) 4) 5 6";
  const CheckpointPlan plan = CheckpointPlan::parse(text);
  EXPECT_EQ(plan.text(), text);
  EXPECT_EQ(plan.stages(), 7);
  const std::string path = ::testing::TempDir() + "lockstep_plan.txt";
  plan.save(path);
  EXPECT_EQ(CheckpointPlan::load(path).text(), text);
  std::remove(path.c_str());
  for (const char* wrong : {"", "(0", "0)", "0 2", "() 0", "0 x", "1 0", "(0 -1)"}) {
    EXPECT_THROW(CheckpointPlan::parse(wrong), Error) << wrong;
  }
  EXPECT_THROW(CheckpointPlan::load(path), Error);
  EXPECT_EQ(CheckpointPlan::uniform(10, 3).text(), "(0 1 2) (3 4 5) 6 7 8 9");
  EXPECT_EQ(CheckpointPlan::automatic(9).text(), "(0 1 2) (3 4 5) 6 7 8");
}

torch::nn::Sequential uneven_net() {
  torch::nn::Sequential net;
  for (int64_t width : {64, 128, 512, 256, 64, 512, 64}) {
    net->push_back(torch::nn::Linear(128, width));
    net->push_back(torch::nn::GELU());
    net->push_back(torch::nn::Linear(width, 128));
    net->push_back(torch::nn::Dropout(0.2));
  }
  return net;
}

/// Measured bytes, and seconds that do not depend on what else the machine does.
ChainCosts bytes_of(const Chain& chain, const at::Tensor& sample) {
  ChainCosts costs = profile_chain(chain, sample);
  for (StageCosts& stage : costs) {
    EXPECT_GT(stage.forward_seconds, 0) << stage.name;
    stage.forward_seconds = static_cast<double>(stage.output_bytes);
    stage.backward_seconds = 2 * stage.forward_seconds;
  }
  return costs;
}

TEST(PlanCheckpoints, PlanRunsAsPredictedWithThePlainGradients) {
  torch::nn::Sequential net = uneven_net();
  const Chain chain = chain_of(net);
  const at::Tensor x = torch::randn({512, 128});
  const ChainCosts costs = bytes_of(chain, x);
  const auto peak_of = [&](const CheckpointPlan& plan) {
    for (const at::Tensor& parameter : net->parameters()) {
      parameter.mutable_grad() = torch::zeros_like(parameter);
    }
    MemoryMeter meter;
    at::Tensor y = plan.run(chain, x);
    const int64_t forward = meter.peak();
    y.register_hook([&](const at::Tensor&) { meter.reset_peak(); });  // the loss is not the chain's
    const at::Tensor loss = y.square().mean();
    y.reset();
    loss.backward();
    return static_cast<double>(std::max(forward, meter.peak()));
  };
  const Trial plain = run_trial(
      net, [&](const at::Tensor& in) { return net->forward(in); }, x);
  const int64_t least = least_activation_bytes(costs);
  const int64_t most = CheckpointPlan::uniform(28, 1).predict(costs).peak_bytes;
  for (int64_t budget : {least, least + (most - least) / 4, least + (most - least) / 2, most}) {
    const CheckpointPlan plan = plan_checkpoints(costs, budget);
    expect_equal(plain,
                 run_trial(
                     net, [&](const at::Tensor& in) { return plan.run(chain, in); }, x),
                 plan.text());
    const auto predicted = static_cast<double>(plan.predict(costs).peak_bytes);
    EXPECT_LE(predicted, static_cast<double>(budget)) << plan.text();
    EXPECT_LE(peak_of(plan), 1.03 * predicted) << plan.text();
    EXPECT_GE(peak_of(plan), 0.97 * predicted) << plan.text();
  }
}

TEST(PlanCheckpoints, ProfileLeavesNoTrace) {
  torch::nn::Sequential net(torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4),
                            torch::nn::Dropout(0.5));
  const at::Tensor x = torch::randn({2, 3, 8, 8});
  const at::Tensor before = rng_state();
  const ChainCosts costs = profile_chain(chain_of(net), x);
  EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 0);
  EXPECT_FALSE(net->parameters()[0].grad().defined());
  ASSERT_EQ(costs.size(), 3U);
  EXPECT_EQ(costs[0].output_bytes, 2 * 4 * 6 * 6 * 4);
  EXPECT_GE(costs[2].saved_bytes, costs[2].output_bytes);
  EXPECT_TRUE(torch::equal(before, rng_state()));
}

TEST(PlanCheckpoints, ALayerThatCountsItsForwardsIsNotCountedByAProfile) {
  int64_t forwards = 0;
  const Chain chain = {{"counts", [&](at::Tensor x) {
                          forwards += is_recomputing() ? 0 : 1;
                          return x.sin();
                        }}};
  profile_chain(chain, torch::randn({2, 3}).requires_grad_(true));
  EXPECT_EQ(forwards, 0);
}

}  // namespace
}  // namespace lockstep::testing
