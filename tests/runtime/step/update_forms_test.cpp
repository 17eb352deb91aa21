// The forms of an update: averaged, with remainders and random rounding.
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "test_names.h"
#include "update_runs.h"

namespace lockstep {

using namespace detail;

namespace {

using testing::Outcome;

TEST(OverflowSkips, AverageMomentsAndBiasCorrectionDoNotAdvanceOnASkip) {
  const auto precision = Precision::O2().loss_scale(amp::LossScalerOptions::fixed(256));
  for (const bool shard : {false, true}) {
    const auto options =
        TrainerOptions().precision(precision).ema(0.8).shard_optimizer(shard).clip_grad_norm(1.0);
    const Outcome skipped = run(AdamW(1e-2), options);
    Outcome clean = run(AdamW(1e-2), options, 12, /*with_overflows=*/false);
    EXPECT_EQ(skipped.updates, 10);
    clean.norms = skipped.norms;
    expect_same(skipped, clean, "");
    EXPECT_FALSE(at::equal(skipped.averages, skipped.masters));
  }
}

TEST(MasterWeights, WeightsWrittenByHandLastOnceTheMastersAdoptThem) {
  for (const Precision& precision :
       {half_precision(), at_scale(Precision::O2(at::kBFloat16).remainders())}) {
    for (const bool adopt : {false, true}) {
      const auto model = std::make_shared<Mlp>();
      Trainer trainer(runtime(), model, SGD(1e-4),
                      TrainerOptions().precision(precision).shard_optimizer(true));
      trainer.step([&] { return scaled_loss(*model, 0); });
      model->first->weight.data().fill_(0.5);  // LibTorch does not count this write
      const auto step = [&] { trainer.step([&] { return scaled_loss(*model, 1); }); };
      if (adopt) {
        trainer.adopt_weights();
        EXPECT_TRUE(is_cast_of_masters(*model, trainer));
      } else if (precision.has_masters()) {
        EXPECT_FALSE(trainer.replicas_agree());
        if (testing::device().is_cpu()) {  // nothing waits for a device to see it
          EXPECT_THAT(error_of(step), HasSubstr("call trainer.adopt_weights() on every rank"));
        }
        continue;
      }
      // With a remainder the weight is half of the master, so writing it is enough but for the
      // rest.
      step();
      EXPECT_TRUE(at::allclose(model->first->weight.to(at::kFloat), testing::full({1}, 0.5), 1e-2));
      EXPECT_TRUE(trainer.replicas_agree());
    }
  }
}

TEST(MixedPrecision, ScaledUnscaledAndClippedEqualsTheFp32Control) {
  const auto clipped = [](double scale, double limit) {
    return run(AdamW(1e-2),
               TrainerOptions()
                   .precision(Precision::O0().loss_scale(amp::LossScalerOptions::fixed(scale)))
                   .clip_grad_norm(limit),
               6, /*with_overflows=*/false);
  };
  const Outcome control = clipped(1.0, 0.05);
  const Outcome scaled = clipped(65536.0, 0.05);
  for (size_t i = 0; i < control.norms.size(); ++i) {
    EXPECT_GT(control.norms[i], 0.05);
    EXPECT_NEAR(scaled.norms[i], control.norms[i], 1e-7 * control.norms[i]);
  }
  EXPECT_LT(testing::relative_distance(scaled.masters, control.masters), 1e-7);
  EXPECT_FALSE(at::equal(control.masters, clipped(1.0, 1e9).masters));
}

TEST(MasterWeights, TheModelIsItsRoundedMasterAndMastersAreBitEqual) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    for (const bool shard : {false, true}) {
      const auto model = std::make_shared<Mlp>();
      Trainer trainer(
          runtime(), model, AdamW(1e-2),
          TrainerOptions().precision(at_scale(Precision::O2(dtype))).shard_optimizer(shard));
      for (int64_t step = 0; step < 10; ++step) {
        trainer.step([&] { return scaled_loss(*model, step); });
        ASSERT_TRUE(is_cast_of_masters(*model, trainer)) << step;
        ASSERT_TRUE(equal_on_all_ranks(flat_masters(trainer))) << step;
        ASSERT_TRUE(equal_on_all_ranks(flat(model->parameters()))) << step;
      }
    }
  }
}

TEST(Remainders, GiveTheMastersOfAnFp32MasterRun) {
  const auto options = TrainerOptions().precision(at_scale(Precision::O2(at::kBFloat16))).ema(0.9);
  const auto with_rests =
      TrainerOptions(options).precision(at_scale(Precision::O2(at::kBFloat16).remainders()));
  const Outcome fp32 = run(AdamW(1e-2), options, 30);
  const Outcome rests = run(AdamW(1e-2), with_rests, 30);
  expect_same(rests, fp32, "");
  EXPECT_EQ(rests.memory.masters * 2, fp32.memory.masters);
}

TEST(StochasticRounding, TrainsWhereRoundingToNearestStalls) {
  const auto distance = [](const Precision& precision) {
    const auto model = std::make_shared<OneWeight>(at::ones({4096}));
    Trainer trainer(runtime(), model, SGD(1e-3), TrainerOptions().precision(precision));
    for (int i = 0; i < 500; ++i) {
      trainer.step([&]() -> Loss { return model->weight.to(at::kFloat).sum(); });
    }
    EXPECT_TRUE(trainer.replicas_agree());
    return 1.0 - model->weight.to(at::kFloat).mean().item<double>();
  };
  EXPECT_EQ(distance(Precision::O3(at::kBFloat16)), 0.0);
  EXPECT_NEAR(distance(Precision::O3(at::kBFloat16).stochastic_rounding()), 0.5, 0.005);
}

TEST(Average, IsTheExponentialAverageOfTheMasters) {
  for (const Precision& precision : {Precision::O0(), half_precision()}) {
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, AdamW(1e-2),
                    TrainerOptions().precision(precision).ema(0.75).shard_optimizer(true));
    at::Tensor expected = flat_masters(trainer).clone();
    EXPECT_TRUE(at::equal(flat(trainer.averaged()), expected));
    for (int64_t step = 0; step < 5; ++step) {
      trainer.step([&] { return scaled_loss(*model, step); });
      expected += 0.25 * (flat_masters(trainer) - expected);
    }
    EXPECT_TRUE(at::equal(flat(trainer.averaged()), expected));
  }
}

TEST(Average, IsKeptForTorchOptimizersAndUnusedParametersToo) {
  const TorchOptimizer torch_sgd([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::SGD>(std::move(masters), 0.1);
  });
  for (const auto& spec : {torch_sgd.clone(), SGD(0.1).clone()}) {
    const auto model = std::make_shared<Branches>();
    Trainer trainer(runtime(), model, *spec,
                    TrainerOptions().ema(0.5).unused(UnusedParameters::detect));
    at::Tensor expected = flat_masters(trainer).clone();
    for (int i = 0; i < 4; ++i) {
      trainer.step([&]() -> Loss {
        const auto& branch = i % 2 == 0 ? model->left : model->right;
        return branch->weight.sum() + branch->bias.sum();
      });
      expected += 0.5 * (flat_masters(trainer) - expected);
    }
    EXPECT_TRUE(at::allclose(flat(trainer.averaged()), expected)) << spec->describe();
  }
}

TEST(Average, MustBeAskedFor) {
  const auto model = std::make_shared<Mlp>();
  const Trainer trainer(runtime(), model, SGD(0.1));
  EXPECT_THAT(error_of([&] { trainer.averaged(); }), HasSubstr("TrainerOptions().ema("));
}

}  // namespace
}  // namespace lockstep
