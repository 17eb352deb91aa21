// Optimizer state spread over the ranks, and what ranks that saw different things decide together.
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "test_names.h"
#include "update_runs.h"

namespace lockstep {
namespace {

using testing::Outcome;

BucketOptions small_buckets() {
  return BucketOptions().first_bucket_bytes(16).bucket_bytes(100);
}

TEST(Sharding, HasTheBitsOfAnUnshardedRun) {
  const std::vector<Precision> levels = {
      at_scale(Precision::O0()), at_scale(Precision::O1(at::kBFloat16)), at_scale(Precision::O2()),
      at_scale(Precision::O2(at::kBFloat16).remainders()),
      at_scale(Precision::O3(at::kBFloat16).stochastic_rounding())};
  for (const Precision& level : levels) {
    const auto options = TrainerOptions()
                             .precision(level)
                             .accumulate(2)
                             .clip_grad_norm(0.5)
                             .clip_grad_value(0.1)
                             .ema(0.9)
                             .schedule(WarmupCosine(3, 20))
                             .buckets(small_buckets());
    const auto sharded = TrainerOptions(options).shard_optimizer(true);
    const auto adamw = AdamW(1e-2).weight_decay(0.1).no_decay_on_norms_and_biases();
    expect_same(run(adamw, sharded), run(adamw, options), level.describe());
  }
}

TEST(Sharding, HasTheBitsOfAnUnshardedRunForEveryOptimizerAndMoment) {
  const auto options = TrainerOptions().precision(half_precision());
  const auto sharded = TrainerOptions(options).shard_optimizer(true);
  for (const auto& spec : {Adam(1e-2).moments(MomentFormat::bf16).clone(),
                           AdamW(1e-2).moments(MomentFormat::bf16).clone(),
                           SGD(0.1).momentum(0.9).moments(MomentFormat::bf16).clone(),
                           Lion(1e-3).moments(MomentFormat::bf16).clone(), SGD(0.1).clone()}) {
    expect_same(run(*spec, sharded, 6), run(*spec, options, 6), spec->describe());
  }
}

TEST(Sharding, DividesMastersMomentsAndAveragesByTheRanks) {
  const auto options = TrainerOptions().precision(half_precision()).ema(0.9);
  const auto all = run(AdamW(1e-3), options, 1).memory;
  const auto own = run(AdamW(1e-3), TrainerOptions(options).shard_optimizer(true), 1).memory;
  const int64_t ranks = runtime().size();
  const auto expect_share = [&](int64_t share, int64_t whole) {
    at::Tensor sum = at::full({1}, share, at::kLong);
    Communicator control = runtime().control();
    control.all_reduce(sum).wait();
    EXPECT_EQ(sum.item<int64_t>(), whole);  // the shares of all ranks are one whole
    EXPECT_LE(share, (whole / ranks / 256 + 1) * 256 * 2);
  };
  expect_share(own.masters, all.masters);
  expect_share(own.moments, all.moments);
  expect_share(own.averages, all.averages);
  EXPECT_EQ(own.gradients, all.gradients);
}

TEST(Sharding, LeavesParametersThatNobodyUsedAlone) {
  for (const bool shard : {false, true}) {
    at::manual_seed(3);
    const auto model = std::make_shared<Branches>();
    Trainer trainer(runtime(), model, AdamW(0.1).weight_decay(0.5),
                    TrainerOptions().unused(UnusedParameters::detect).shard_optimizer(shard));
    const at::Tensor start = model->right->weight.detach().clone();
    const at::Tensor left = model->left->weight.detach().clone();
    for (int i = 0; i < 3; ++i) {
      trainer.step([&]() -> Loss { return model->left->weight.sum() + model->left->bias.sum(); });
    }
    EXPECT_TRUE(at::equal(model->right->weight, start));
    EXPECT_FALSE(at::equal(model->left->weight, left));
    EXPECT_TRUE(trainer.replicas_agree());
  }
}

TEST(Sharding, GivesLambWholeParametersAndTheBitsOfAnUnshardedRun) {
  for (const bool small : {false, true}) {
    const auto options = TrainerOptions()
                             .precision(half_precision())
                             .ema(0.9)
                             .buckets(small ? small_buckets() : BucketOptions());
    Outcome sharded =
        run(LAMB(1e-3).weight_decay(0.1), TrainerOptions(options).shard_optimizer(true));
    const Outcome whole = run(LAMB(1e-3).weight_decay(0.1), options);
    ASSERT_EQ(sharded.norms.size(), whole.norms.size());
    for (size_t i = 0; i < whole.norms.size(); ++i) {  // the squares are added in another order
      EXPECT_NEAR(sharded.norms[i], whole.norms[i], 1e-6 * whole.norms[i]);
    }
    sharded.norms = whole.norms;
    expect_same(sharded, whole, small ? "small buckets" : "one bucket");
  }
}

TorchOptimizer torch_adamw() {
  return TorchOptimizer([](std::vector<at::Tensor> masters) {
    std::vector<at::Tensor> matrices;
    std::vector<at::Tensor> others;
    for (const at::Tensor& master : masters) {
      (master.dim() > 1 ? matrices : others).push_back(master);
    }
    auto optimizer = std::make_unique<torch::optim::AdamW>(
        std::move(matrices), torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
    optimizer->add_param_group(torch::optim::OptimizerParamGroup(
        std::move(others), std::make_unique<torch::optim::AdamWOptions>(3e-2)));
    return optimizer;
  });
}

TEST(Sharding, GivesATorchOptimizerItsElementsOfEachMaster) {
  for (const auto& precision : {Precision::O0(), half_precision()}) {
    const auto options = TrainerOptions()
                             .precision(at_scale(precision))
                             .ema(0.9)
                             .clip_grad_norm(0.5)
                             .buckets(small_buckets());
    expect_same(run(torch_adamw(), TrainerOptions(options).shard_optimizer(true)),
                run(torch_adamw(), options), precision.describe());
  }
}

/// May do anything with a parameter.
class OwnSgd final : public torch::optim::SGD {
 public:
  using SGD::SGD;
};

TEST(Sharding, RefusesATorchOptimizerThatMayNeedWholeParameters) {
  if (runtime().size() == 1) {
    return;
  }
  const TorchOptimizer own([](std::vector<at::Tensor> masters) {
    return std::make_unique<OwnSgd>(std::move(masters), 0.1);
  });
  const std::string refusal = error_of([&] {
    Trainer(runtime(), std::make_shared<Mlp>(), own, TrainerOptions().shard_optimizer(true));
  });
  EXPECT_THAT(refusal, HasSubstr("OwnSgd may need the whole"));
}

TEST(OverflowSkips, ShardedStateSharesOneDecisionBeforeStepAndScale) {
  // A naive rank looks at its own share only: the inf lies in the share of one rank.
  const auto model = std::make_shared<OneWeight>(at::ones({64 * 8}));
  Trainer trainer(runtime(), model, SGD(0.1).momentum(0.9),
                  TrainerOptions()
                      .precision(Precision::O0().loss_scale(amp::LossScalerOptions().init_scale(8)))
                      .shard_optimizer(true));
  double scale = 8;
  for (const int64_t element : {0, 200, 511}) {
    const at::Tensor before = model->weight.detach().clone();
    at::Tensor factor = testing::ones({64 * 8});
    if (runtime().rank() == 0) {
      factor[element] = overflow_factor;
    }
    EXPECT_TRUE(trainer.step([&]() -> Loss { return (model->weight * factor).sum(); }).skipped());
    scale /= 2;
    EXPECT_EQ(trainer.loss_scale(), scale);
    EXPECT_TRUE(at::equal(model->weight, before));
    EXPECT_TRUE(trainer.replicas_agree());
  }
}

TEST(OverflowSkips, AfterASkipAllRanksGoOnWithTheSameCollectives) {
  for (const bool shard : {false, true}) {
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, AdamW(1e-2),
                    TrainerOptions().precision(half_precision()).shard_optimizer(shard));
    for (int64_t step = 0; step < 8; ++step) {
      const bool here = runtime().rank() == step % runtime().size() && step % 2 == 0;
      const auto report =
          trainer.step([&] { return scaled_loss(*model, step, here ? overflow_factor : 1.0F); });
      EXPECT_EQ(report.skipped(), step % 2 == 0);
      EXPECT_TRUE(trainer.replicas_agree());  // a collective of its own
    }
    EXPECT_EQ(trainer.updates(), 4);
  }
}

TEST(FusedUpdates, NoGradientIsNotAZeroGradient) {
  const auto moved = [](UnusedParameters policy) {
    at::manual_seed(3);
    const auto model = std::make_shared<Branches>();
    Trainer trainer(runtime(), model, Adam(0.1), TrainerOptions().unused(policy));
    const auto loss = [](torch::nn::Linear& branch) -> Loss {
      return branch->weight.sum() + branch->bias.sum();
    };
    trainer.step([&] { return loss(model->right); });
    const at::Tensor start = model->right->weight.detach().clone();
    // Used on one rank only: the others send zeros for it, in the same buckets.
    trainer.step([&] { return loss(runtime().is_main() ? model->right : model->left); });
    EXPECT_FALSE(at::equal(model->right->weight, start));
    const at::Tensor before = model->right->weight.detach().clone();
    trainer.step([&] { return loss(model->left); });
    EXPECT_TRUE(trainer.replicas_agree());
    return !at::equal(model->right->weight, before);
  };
  EXPECT_TRUE(moved(UnusedParameters::zeros));    // Adam's moments go on
  EXPECT_FALSE(moved(UnusedParameters::detect));  // nothing of it moves
}

TEST(OverflowSkips, AnOverflowOfAParameterThatOthersDoNotUseIsDecidedByAll) {
  for (const bool shard : {false, true}) {
    const auto model = std::make_shared<Branches>();
    Trainer trainer(runtime(), model, AdamW(1e-2),
                    TrainerOptions()
                        .precision(half_precision())
                        .unused(UnusedParameters::zeros)
                        .shard_optimizer(shard));
    const at::Tensor before = flat_masters(trainer).clone();
    const auto report = trainer.step([&]() -> Loss {
      const auto x = testing::ones({1, 3}, at::kHalf);
      const auto loss = model->left->forward(x).to(at::kFloat).sum();
      return runtime().is_main() ? loss + model->right->forward(x).to(at::kFloat).sum() * 1e30
                                 : loss;
    });
    EXPECT_TRUE(report.skipped());
    EXPECT_EQ(trainer.loss_scale(), 128);
    EXPECT_TRUE(at::equal(flat_masters(trainer), before));
    EXPECT_TRUE(trainer.replicas_agree());
  }
}

}  // namespace
}  // namespace lockstep
