// A Trainer on one rank, against what plain LibTorch does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/trainer.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <limits>

#include "error_of.h"
#include "runtime/flat_tensors.h"
#include "runtime/models.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

struct Pair {
  Pair() { testing::copy_state(*ours, plain); }
  std::shared_ptr<Mlp> ours = std::make_shared<Mlp>();
  Mlp plain;
};

/// 50 updates by a Trainer and by a plain loop: the relative distance of the weights.
template <typename Optimizer, typename Options>
double distance_to_plain(const OptimizerSpec& spec, const Options& options) {
  Runtime runtime = testing::solo_runtime();
  Pair pair;
  Trainer trainer(runtime, pair.ours, spec);
  Optimizer optimizer(pair.plain.parameters(), options);
  for (int step = 0; step < 50; ++step) {
    const at::Tensor x = testing::randn({6, 4});
    const at::Tensor y = testing::randn({6, 2});
    trainer.step([&] { return pair.ours->loss(x, y); });
    optimizer.zero_grad();
    pair.plain.loss(x, y).backward();
    optimizer.step();
  }
  const at::Tensor expected = flat(pair.plain.parameters());
  return ((flat(pair.ours->parameters()) - expected).norm() / expected.norm()).item<double>();
}

TEST(Trainer, MatchesLibTorchsAdamW) {
  const double distance = distance_to_plain<torch::optim::AdamW>(
      AdamW(1e-3).weight_decay(0.1), torch::optim::AdamWOptions(1e-3).weight_decay(0.1));
  EXPECT_LE(distance, 1e-6);
}

TEST(Trainer, MatchesLibTorchsAdam) {
  const double distance = distance_to_plain<torch::optim::Adam>(
      Adam(1e-3).weight_decay(0.1), torch::optim::AdamOptions(1e-3).weight_decay(0.1));
  EXPECT_LE(distance, 1e-6);
}

TEST(Trainer, MatchesLibTorchsSgdWithNesterovMomentum) {
  const double distance = distance_to_plain<torch::optim::SGD>(
      SGD(0.05).momentum(0.9).nesterov(true).weight_decay(0.01),
      torch::optim::SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(0.01));
  EXPECT_LE(distance, 1e-6);
}

TEST(Trainer, RunsAnyTorchOptimizerOnTheMasters) {
  const TorchOptimizer adamw([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::AdamW>(std::move(masters),
                                                 torch::optim::AdamWOptions(1e-3));
  });
  const double distance =
      distance_to_plain<torch::optim::AdamW>(adamw, torch::optim::AdamWOptions(1e-3));
  EXPECT_LE(distance, 1e-6);
}

TEST(Trainer, ATorchOptimizerFollowsTheSchedule) {
  Runtime runtime = testing::solo_runtime();
  const TorchOptimizer sgd([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::SGD>(std::move(masters), torch::optim::SGDOptions(0.2));
  });
  Pair pair;
  Trainer ours(runtime, pair.ours, sgd, TrainerOptions().schedule(WarmupLinear(5, 10)));
  const auto fused_model = std::make_shared<Mlp>();
  testing::copy_state(pair.plain, *fused_model);
  Trainer fused(runtime, fused_model, SGD(0.2), TrainerOptions().schedule(WarmupLinear(5, 10)));
  for (int step = 0; step < 8; ++step) {
    const at::Tensor x = testing::randn({6, 4});
    const at::Tensor y = testing::randn({6, 2});
    ours.step([&] { return pair.ours->loss(x, y); });
    fused.step([&] { return fused_model->loss(x, y); });
  }
  EXPECT_TRUE(at::allclose(flat(pair.ours->parameters()), flat(fused_model->parameters()), 1e-6));
}

TEST(Trainer, GradientNormAndClippingAreTorchs) {
  constexpr double limit = 0.05;
  Runtime runtime = testing::solo_runtime();
  Pair pair;
  Trainer trainer(runtime, pair.ours, SGD(0.1),
                  TrainerOptions().clip_grad_norm(0.3).clip_grad_value(limit));
  for (int step = 0; step < 10; ++step) {
    const at::Tensor x = testing::randn({6, 4});
    const at::Tensor y = 5 * testing::randn({6, 2});
    const auto report = trainer.step([&] { return pair.ours->loss(x, y); });
    testing::clear_gradients(pair.plain);
    pair.plain.loss(x, y).backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : pair.plain.parameters()) {
      gradients.push_back(parameter.grad());
    }
    const double norm = flat(gradients).norm().item<double>();
    EXPECT_NEAR(report.grad_norm(), norm, 1e-5 * norm);
    ASSERT_GT(norm, 0.3);
    for (const at::Tensor& gradient : gradients) {
      gradient.mul_(0.3 / (norm + 1e-6));
    }
    ASSERT_GT(flat(gradients).abs().max().item<double>(), limit);
    for (const at::Tensor& gradient : gradients) {
      gradient.clamp_(-limit, limit);
    }
    testing::descend(pair.plain, 0.1);
  }
  EXPECT_TRUE(at::allclose(flat(pair.ours->parameters()), flat(pair.plain.parameters()), 1e-5));
}

TEST(Trainer, ReportsWhatTheStepDid) {
  Runtime runtime = testing::solo_runtime();
  Pair pair;
  Trainer trainer(runtime, pair.ours, SGD(0.1), TrainerOptions().accumulate(2));
  const at::Tensor x = testing::randn({6, 4});
  const at::Tensor y = testing::randn({6, 2});
  const double loss = pair.plain.loss(x, y).item<double>();
  const auto first = trainer.step([&] { return pair.ours->loss(x, y); });
  EXPECT_FALSE(first.closes_update());
  EXPECT_EQ(first.update(), 0);
  EXPECT_EQ(first.micro_batch(), 1);
  EXPECT_NEAR(first.loss(), loss, 1e-6);
  EXPECT_TRUE(std::isnan(first.grad_norm()));
  const auto second = trainer.step([&] { return pair.ours->loss(x, y); });
  EXPECT_TRUE(second.closes_update());
  EXPECT_EQ(second.update(), 1);
  EXPECT_EQ(second.micro_batch(), 2);
  EXPECT_FALSE(second.skipped());
  EXPECT_EQ(second.scale(), 1.0);
  EXPECT_EQ(second.learning_rate(), 0.1);
  EXPECT_GT(second.compute_seconds(), 0.0);
  EXPECT_GT(second.update_seconds(), 0.0);
  EXPECT_GE(second.exposed_communication_seconds(), 0.0);
}

TEST(Trainer, ALaterStepChangesNothingInAReport) {
  Runtime runtime = testing::solo_runtime();
  Pair pair;
  Trainer trainer(runtime, pair.ours, SGD(0.1), TrainerOptions().schedule(WarmupLinear(5, 10)));
  const at::Tensor x = testing::randn({6, 4}), y = testing::randn({6, 2});
  const auto step = [&](double by) {
    return trainer.step([&] { return pair.ours->loss(x, y) * by; });
  };
  const StepReport first = step(1.0);
  const auto values = [&] {
    return std::vector<double>{first.loss(),
                               first.grad_norm(),
                               first.scale(),
                               first.learning_rate(),
                               static_cast<double>(first.update()),
                               first.skipped() ? 1.0 : 0.0};
  };
  const std::vector<double> before = values();
  step(std::numeric_limits<double>::infinity());
  step(3.0);
  EXPECT_EQ(values(), before);
}

TEST(Trainer, ConsumesTheGradients) {
  Runtime runtime = testing::solo_runtime();
  Pair pair;
  Trainer trainer(runtime, pair.ours, SGD(0.1));
  trainer.step([&] { return pair.ours->loss(testing::randn({6, 4}), testing::randn({6, 2})); });
  for (const at::Tensor& parameter : pair.ours->parameters()) {
    EXPECT_FALSE(parameter.grad().defined());
  }
}

TEST(Trainer, MemoryIsGradientsAndMomentsAndPadding) {
  Runtime runtime = testing::solo_runtime();
  const auto model = std::make_shared<Mlp>(64);  // 256 + 64 + 128 + 2 elements, 2 padded to 64
  constexpr int64_t elements = 256 + 64 + 128 + 64;
  {
    Trainer trainer(runtime, model, AdamW());
    const auto memory = trainer.memory();
    EXPECT_EQ(memory.weights, 4 * elements);
    EXPECT_EQ(memory.masters, 0);
    EXPECT_EQ(memory.gradients, 4 * elements);
    EXPECT_EQ(memory.accumulators, 0);
    EXPECT_EQ(memory.moments, 2 * 4 * elements);
  }
  Trainer trainer(runtime, model, SGD(0.1).momentum(0.9),
                  TrainerOptions().precision(Precision::O2()).accumulate(2));
  const auto memory = trainer.memory();
  EXPECT_EQ(memory.weights, 2 * elements);
  EXPECT_EQ(memory.masters, 4 * elements);
  EXPECT_EQ(memory.gradients, 2 * elements);
  EXPECT_EQ(memory.accumulators, 4 * elements);
  EXPECT_EQ(memory.moments, 4 * elements);
}

TEST(Trainer, MastersAreNamedInRegistrationOrder) {
  Runtime runtime = testing::solo_runtime();
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime, model, AdamW(), TrainerOptions().precision(Precision::O2()));
  std::vector<std::string> names;
  for (const auto& [name, master] : trainer.masters()) {
    names.push_back(name);
    EXPECT_EQ(master.scalar_type(), at::kFloat);
    EXPECT_EQ(master.sizes(), model->named_parameters()[name].sizes());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"first.weight", "first.bias", "second.weight",
                                             "second.bias"}));
}

TEST(Trainer, ParameterGroupsHaveRatesOfTheirOwn) {
  Runtime runtime = testing::solo_runtime();
  Pair pair;
  const auto is_bias = [](const ModelTensor& tensor) {
    return tensor.name.find("bias") != std::string::npos;
  };
  Trainer trainer(runtime, pair.ours, SGD(0.1).group(is_bias, SGD(0.0)));
  trainer.step([&] { return pair.ours->loss(testing::randn({6, 4}), testing::randn({6, 2})); });
  EXPECT_TRUE(at::equal(pair.ours->first->bias, pair.plain.first->bias));
  EXPECT_FALSE(at::equal(pair.ours->first->weight, pair.plain.first->weight));
}

TEST(Trainer, OptionsAreValidatedByName) {
  Runtime runtime = testing::solo_runtime();
  const auto model = std::make_shared<Mlp>();
  const auto refusal = [&](const TrainerOptions& options) {
    return error_of([&] { Trainer(runtime, model, SGD(0.1), options); });
  };
  EXPECT_THAT(refusal(TrainerOptions().accumulate(0)),
              HasSubstr("TrainerOptions.accumulate must be >= 1, is 0"));
  EXPECT_THAT(refusal(TrainerOptions().clip_grad_norm(0)), HasSubstr("clip_grad_norm"));
  EXPECT_THAT(refusal(TrainerOptions().clip_grad_norm(std::nan(""))), HasSubstr("clip_grad_norm"));
  EXPECT_THAT(refusal(TrainerOptions().clip_grad_value(0)), HasSubstr("clip_grad_value"));
  EXPECT_THAT(refusal(TrainerOptions().ema(1.0)), HasSubstr("TrainerOptions.ema"));
  EXPECT_THAT(refusal(TrainerOptions().ema(-0.1)), HasSubstr("TrainerOptions.ema"));
  EXPECT_THAT(refusal(TrainerOptions().buckets(BucketOptions().bucket_bytes(-1))),
              HasSubstr("BucketOptions.bucket_bytes must be >= 0, is -1"));
  EXPECT_THAT(refusal(TrainerOptions().precision(Precision::O2(at::kFloat))),
              HasSubstr("not a 16-bit"));
  EXPECT_THAT(error_of([&] { Trainer(runtime, model, SGD(-1)); }), HasSubstr("SGD: lr"));
  model->to(at::kDouble);
  EXPECT_THAT(refusal(TrainerOptions().precision(Precision::O1(at::kBFloat16))),
              HasSubstr("parameter first.weight is fp64"));
}

TEST(Trainer, RefusesTorchOptimizersWhereThereAreNoMasters) {
  Runtime runtime = testing::solo_runtime();
  const TorchOptimizer sgd([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::SGD>(std::move(masters), torch::optim::SGDOptions(0.2));
  });
  EXPECT_THAT(error_of([&] {
                Trainer(runtime, std::make_shared<Mlp>(), sgd,
                        TrainerOptions().precision(Precision::O3()));
              }),
              HasSubstr("TorchOptimizer needs fp32 masters"));
}

TEST(Trainer, SummaryHasOneScreen) {
  Runtime runtime = testing::solo_runtime();
  Trainer trainer(runtime, std::make_shared<Mlp>(), AdamW(3e-4),
                  TrainerOptions().precision(Precision::O2()));
  const std::string summary = trainer.summary();
  EXPECT_THAT(summary, HasSubstr("58 trainable elements in 4 parameters, 0 frozen"));
  EXPECT_THAT(summary, HasSubstr("O2"));
  EXPECT_THAT(summary, HasSubstr("AdamW"));
}

TEST(Trainer, SummaryHasALineForEachParameterGroup) {
  Runtime runtime = testing::solo_runtime();
  const auto is_bias = [](const ModelTensor& entry) { return entry.tensor.dim() == 1; };
  const Trainer trainer(runtime, std::make_shared<Mlp>(),
                        AdamW(1e-2).beta2(0.5).group(is_bias, AdamW().weight_decay(0)));
  EXPECT_THAT(
      trainer.summary(),
      HasSubstr("optimizer  AdamW lr 0.01 beta2 0.5 weight_decay 0.01, 2 groups\n"
                "  group 0  2 parameters, 48 elements: lr 0.01 beta2 0.5 weight_decay 0.01\n"
                "  group 1  2 parameters, 10 elements: lr 0.01 beta2 0.5 weight_decay 0\n"
                "buckets"));
}

}  // namespace
}  // namespace lockstep
