// TrainerOptions::activation_budget: the plain weights, bit for bit, within the budget.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "error_of.h"
#include "test_names.h"
#include "test_runtime.h"
#include "trained.h"

namespace lockstep {
namespace {

using torch::nn::Sequential;

constexpr int64_t batch = 64;

Sequential new_sequential() {
  torch::manual_seed(11);
  Sequential net;
  for (int block = 0; block < 4; ++block) {
    net->push_back(torch::nn::Linear(16, 48));
    net->push_back(torch::nn::BatchNorm1d(48));
    net->push_back(torch::nn::Tanh());
    net->push_back(torch::nn::Dropout(0.2));
    net->push_back(torch::nn::Linear(48, 16));
  }
  net->to(testing::device());
  return net;
}

at::Tensor batch_of_this_rank() {
  torch::manual_seed(100 + static_cast<uint64_t>(runtime().rank()));
  return testing::randn({batch, 16});
}

/// Blocks that forward() calls as one chain.
struct Listed : torch::nn::Module {
  Listed() {
    torch::manual_seed(12);
    Chain chain;
    for (int block = 0; block < 6; ++block) {
      const std::string name = "block" + std::to_string(block);
      torch::nn::Linear linear(16, 16);
      register_module(name, linear);
      chain.push_back({name, [linear](at::Tensor x) mutable { return linear(x).tanh(); },
                       [linear] { return linear->parameters(); }});
    }
    blocks = PlannedChain(std::move(chain));
    head = register_module("head", torch::nn::Linear(16, 4));
    to(testing::device());
  }
  at::Tensor forward(const at::Tensor& x) { return head(blocks(x)); }
  PlannedChain blocks;
  torch::nn::Linear head{nullptr};
};

template <class Net>
Trained trained(Net net, const TrainerOptions& options) {
  Trainer trainer(runtime(), net, AdamW(1e-2), options);
  const at::Tensor x = batch_of_this_rank();
  for (int step = 0; step < 6; ++step) {
    trainer.step([&]() -> Loss { return net->forward(x).to(at::kFloat).square().mean(); });
  }
  Trained result;
  result.report = trainer.activation_report();
  for (const auto& master : trainer.masters()) {
    result.tensors.push_back(master.second.detach().clone());
  }
  for (const at::Tensor& buffer : net->buffers()) {
    result.tensors.push_back(buffer.clone());
  }
  return result;
}

/// Bytes that force some recompute, in fp32.
int64_t tight_budget() {
  Sequential net = new_sequential();
  const ChainCosts costs = profile_chain(chain_of(net), batch_of_this_rank());
  return least_activation_bytes(costs) * 5 / 4;
}

TEST(ActivationBudget, EveryPrecisionEndsAtThePlainWeights) {
  const std::vector<ActivationBudget> budgets = {"automatic", tight_budget()};
  for (const Precision& precision : {Precision::O0(), Precision::O1(), Precision::O2()}) {
    const auto options = TrainerOptions().precision(precision).accumulate(2);
    const Trained plain = trained(new_sequential(), options);
    EXPECT_EQ(plain.report, "");
    for (const ActivationBudget& budget : budgets) {
      const Trained ours =
          trained(new_sequential(), TrainerOptions(options).activation_budget(budget));
      expect_equal(plain, ours, precision.describe() + ", budget " + budget.text());
      EXPECT_THAT(ours.report, HasSubstr("budget " + budget.text()));
      EXPECT_THAT(ours.report, HasSubstr("measured"));
      EXPECT_EQ(ours.report.find('(') != std::string::npos, true) << ours.report;
    }
  }
}

TEST(ActivationBudget, ListedBlocksEndAtThePlainWeights) {
  const auto plain = trained(std::make_shared<Listed>(), TrainerOptions());
  const auto net = std::make_shared<Listed>();
  const auto ours =
      trained(net, TrainerOptions().activation_chain(net->blocks).activation_budget("automatic"));
  expect_equal(plain, ours, "listed blocks");
  EXPECT_THAT(ours.report, HasSubstr("plan (0 1 2) 3 4 5"));
}

/// A chain within the tight budget, whose plan is made.
struct TightChain {
  TightChain() {
    chain.set_budget(budget);
    run_step();
  }
  /// Forward and backward with nothing of the loss alive in backward but its scalar. The gradients
  /// are there before.
  void run_step() const {
    for (const at::Tensor& parameter : net->parameters()) {
      parameter.mutable_grad() = at::zeros_like(parameter);
    }
    at::Tensor output = chain(input);
    const at::Tensor loss = output.square().mean();
    output.reset();
    loss.backward();
  }

  const int64_t budget = tight_budget();
  Sequential net = new_sequential();
  const PlannedChain chain{chain_of(net)};
  const at::Tensor input = batch_of_this_rank();
};

/// The loss, its gradient and what else is smaller than the smallest block of a device.
constexpr int64_t small_blocks = 6 * 512;

TEST(ActivationBudget, MeasuredPeakKeepsToTheBudget) {
  const TightChain tight;
  const int64_t budget = tight.budget;
  const PlannedChain& chain = tight.chain;
  ASSERT_TRUE(chain.planned()->predicted.has_value());
  EXPECT_LE(chain.planned()->predicted->peak_bytes, budget);
  EXPECT_GT(chain.planned()->plain->peak_bytes, budget);
  const PlannedChain::Watch watch(chain, testing::device().type());
  EXPECT_FALSE(watch.peak_bytes().has_value());
  tight.run_step();
  EXPECT_GT(*watch.peak_bytes(), budget / 2) << chain.planned()->plan.text();
  EXPECT_LE(*watch.peak_bytes(), budget + small_blocks) << chain.planned()->plan.text();
}

TEST(ActivationBudget, MeasuredPeakIsThePredictedOneWhateverTheTimes) {
  const TightChain tight;
  const PlannedChain& chain = tight.chain;
  std::mt19937 random(3);
  std::set<std::string> plans;
  for (int trial = 0; trial < 40; ++trial) {
    ChainCosts costs = chain.planned()->costs;
    for (StageCosts& stage : costs) {
      stage.forward_seconds = static_cast<double>(random() % 100);
      stage.backward_seconds = static_cast<double>(random() % 100);
    }
    const CheckpointPlan plan = plan_checkpoints(costs, tight.budget);
    if (plans.insert(plan.text()).second) {
      chain.use(plan);
      const PlannedChain::Watch watch(chain, testing::device().type());
      tight.run_step();
      const int64_t predicted = chain.planned()->predicted->peak_bytes;
      EXPECT_GE(*watch.peak_bytes(), predicted - small_blocks) << plan.text();
      EXPECT_LE(*watch.peak_bytes(), predicted + small_blocks) << plan.text();
    }
  }
  EXPECT_GT(plans.size(), 5U);
}

TEST(ActivationBudget, LargerInputIsPlannedAnew) {
  Sequential net = new_sequential();
  const PlannedChain chain(chain_of(net));
  chain.set_budget(1 << 30);
  chain(testing::randn({8, 16}));
  const int64_t small = chain.planned()->predicted->peak_bytes;
  chain(testing::randn({4, 16}));
  EXPECT_EQ(chain.planned()->predicted->peak_bytes, small);
  chain(testing::randn({32, 16}));
  EXPECT_GT(chain.planned()->predicted->peak_bytes, 2 * small);
}

TEST(ActivationBudget, TooSmallABudgetNamesTheLeastOnEveryRank) {
  Sequential net = new_sequential();
  Trainer trainer(runtime(), net, AdamW(1e-2), TrainerOptions().activation_budget("1 KiB"));
  const at::Tensor x = batch_of_this_rank();
  const auto step = [&] {
    trainer.step([&]() -> Loss { return net->forward(x).square().mean(); });
  };
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::string message = error_of(step);
    EXPECT_THAT(message, HasSubstr("the budget is 1024 bytes"));
    EXPECT_THAT(message, HasSubstr("need at least"));
  }
  EXPECT_EQ(trainer.updates(), 0);
}

TEST(ActivationBudget, ModelsWithoutOneChainAreRefused) {
  const auto make = [](auto net, const TrainerOptions& options) {
    net->to(testing::device());
    return error_of([&] { Trainer(runtime(), net, AdamW(1e-2), options); });
  };
  const auto budget = TrainerOptions().activation_budget("1 MiB");
  EXPECT_THAT(make(torch::nn::Linear(2, 2), budget), HasSubstr("has no torch::nn::Sequential"));
  auto two = std::make_shared<torch::nn::Module>();
  two->register_module("left", new_sequential());
  two->register_module("right", new_sequential());
  EXPECT_THAT(make(two, budget), HasSubstr("has 2 Sequentials (left, right)"));
  EXPECT_THAT(make(two, TrainerOptions().activation_chain(
                            PlannedChain(Chain{{"a", [](at::Tensor x) { return x; }}}))),
              HasSubstr("activation_chain needs an activation_budget"));
  for (const char* text : {"", "8 Gib", "many", "-1 MB", "0"}) {
    EXPECT_THAT(error_of([&] { TrainerOptions().activation_budget(text); }),
                HasSubstr("expected a positive number of bytes"));
  }
  EXPECT_EQ(ActivationBudget("8 GiB").bytes(), int64_t{8} << 30);
  EXPECT_EQ(ActivationBudget("1.5MB").bytes(), 1500000);
}

}  // namespace
}  // namespace lockstep
