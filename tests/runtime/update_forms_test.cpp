// The forms of an update: sharded, averaged, with remainders, random rounding and error feedback.
#include <torch/optim/sgd.h>

#include "trainer_runs.h"

namespace lockstep {
namespace {

using testing::Branches;
using testing::equal_on_all_ranks;
using testing::error_of;
using testing::flat_masters;
using testing::half_precision;
using ::testing::HasSubstr;
using testing::is_cast_of_masters;
using testing::Mlp;
using testing::OneWeight;
using testing::overflow_factor;
using testing::runtime;
using testing::scaled_loss;

using Named = std::vector<std::pair<std::string, at::Tensor>>;

at::Tensor flat(const Named& named) {
  std::vector<at::Tensor> flats;
  for (const auto& each : named) {
    flats.push_back(each.second.detach().reshape({-1}).to(at::kFloat));
  }
  return at::cat(flats);
}

at::Tensor flat(const torch::nn::Module& model) {
  std::vector<at::Tensor> flats;
  for (const at::Tensor& weight : model.parameters()) {
    flats.push_back(weight.detach().reshape({-1}).to(at::kFloat));
  }
  return at::cat(flats);
}

BucketOptions small_buckets() {
  return BucketOptions().first_bucket_bytes(16).bucket_bytes(100);
}

/// What a run left; inf on the last rank at some steps.
struct Outcome {
  at::Tensor masters, weights, averages;
  std::vector<double> norms;
  double scale = 0.0;
  int64_t updates = 0;
  Trainer::Memory memory;
};

Outcome run(const OptimizerSpec& spec, const TrainerOptions& options, int64_t steps = 12,
            bool with_overflows = true) {
  at::manual_seed(17);
  const auto model = std::make_shared<Mlp>(/*hidden=*/37);
  Trainer trainer(runtime(), model, spec, options);
  Outcome outcome;
  for (int64_t step = 0; step < steps; ++step) {
    const bool planted = step == 3 || step == 8;
    if (planted && !with_overflows) {
      continue;
    }
    const bool here = planted && runtime().rank() == runtime().size() - 1;
    for (int64_t k = 0; k < options.accumulate(); ++k) {
      const auto report = trainer.step(
          [&] { return scaled_loss(*model, step * 10 + k, here ? overflow_factor : 1.0F); });
      if (report.closes_update()) {
        EXPECT_EQ(report.skipped(), planted);
        outcome.norms.push_back(planted ? 0.0 : report.grad_norm());
      }
    }
    EXPECT_TRUE(trainer.replicas_agree()) << step;
  }
  outcome.masters = flat(trainer.masters()).clone();
  outcome.weights = flat(*model);
  outcome.averages = options.ema() > 0.0 ? flat(trainer.averaged()).clone() : outcome.masters;
  outcome.scale = trainer.loss_scale();
  outcome.updates = trainer.updates();
  outcome.memory = trainer.memory();
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_TRUE(at::equal(a.masters, b.masters)) << what;
  EXPECT_TRUE(at::equal(a.weights, b.weights)) << what;
  EXPECT_TRUE(at::equal(a.averages, b.averages)) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_EQ(a.scale, b.scale) << what;
  EXPECT_EQ(a.updates, b.updates) << what;
}

Precision at_scale(const Precision& precision) {
  return precision.loss_scale(amp::LossScalerOptions().init_scale(256));
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
                           AdamW(1e-2).moments(MomentFormat::int8).clone(),
                           SGD(0.1).momentum(0.9).moments(MomentFormat::int8).clone(),
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

TEST(Sharding, RefusesOptimizersThatNeedWholeParameters) {
  if (runtime().size() == 1) {
    EXPECT_NO_THROW(run(LAMB(1e-3), TrainerOptions().shard_optimizer(true), 1));
    return;
  }
  const auto model = std::make_shared<Mlp>();
  const auto sharded = TrainerOptions().shard_optimizer(true);
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, LAMB(1e-3), sharded); }),
              HasSubstr("depends on the whole parameter"));
  const TorchOptimizer torch_sgd([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::SGD>(std::move(masters), 0.1);
  });
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, torch_sgd, sharded); }),
              HasSubstr("keeps its state whole"));
}

TEST(AmpTraps, T01_ShardedStateSharesOneDecisionBeforeStepAndScale) {
  // A naive rank looks at its own share only: the inf lies in the share of one rank.
  const auto model = std::make_shared<OneWeight>(at::ones({64 * 8}));
  Trainer trainer(runtime(), model, SGD(0.1).momentum(0.9),
                  TrainerOptions()
                      .precision(Precision::O0().loss_scale(amp::LossScalerOptions().init_scale(8)))
                      .shard_optimizer(true));
  double scale = 8;
  for (const int64_t element : {0, 200, 511}) {
    const at::Tensor before = model->weight.detach().clone();
    at::Tensor factor = at::ones({64 * 8});
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

TEST(AmpTraps, T02_AfterASkipAllRanksGoOnWithTheSameCollectives) {
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

TEST(AmpTraps, T10_AverageMomentsAndBiasCorrectionDoNotAdvanceOnASkip) {
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

TEST(AmpTraps, T15_WeightsWrittenByHandLastOnceTheMastersAdoptThem) {
  for (const Precision& precision :
       {half_precision(), at_scale(Precision::O2(at::kBFloat16).remainders())}) {
    for (const bool adopt : {false, true}) {
      const auto model = std::make_shared<Mlp>();
      Trainer trainer(runtime(), model, SGD(1e-4),
                      TrainerOptions().precision(precision).shard_optimizer(true));
      trainer.step([&] { return scaled_loss(*model, 0); });
      {
        const at::NoGradGuard no_grad;
        model->first->weight.fill_(0.5);
      }
      if (adopt) {
        trainer.adopt_weights();
        EXPECT_TRUE(is_cast_of_masters(*model, trainer));
      }
      trainer.step([&] { return scaled_loss(*model, 1); });
      const bool lasts =
          at::allclose(model->first->weight.to(at::kFloat), at::full({1}, 0.5), 1e-2);
      // With a remainder the weight is half of the master, so writing it is enough but for the
      // rest.
      EXPECT_EQ(lasts, adopt || precision.has_remainders());
      EXPECT_TRUE(trainer.replicas_agree());
    }
  }
}

TEST(AmpTraps, T19_NoGradientIsNotAZeroGradient) {
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

TEST(AmpFacts, N19_ScaledUnscaledAndClippedEqualsTheFp32Control) {
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

TEST(AmpFacts, N24_AnOverflowOfAParameterThatOthersDoNotUseIsDecidedByAll) {
  for (const bool shard : {false, true}) {
    const auto model = std::make_shared<Branches>();
    Trainer trainer(runtime(), model, AdamW(1e-2),
                    TrainerOptions()
                        .precision(half_precision())
                        .unused(UnusedParameters::zeros)
                        .shard_optimizer(shard));
    const at::Tensor before = flat_masters(trainer).clone();
    const auto report = trainer.step([&]() -> Loss {
      const auto x = at::ones({1, 3}, at::kHalf);
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

TEST(AmpFacts, N27_TheModelIsItsRoundedMasterAndMastersAreBitEqual) {
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
        ASSERT_TRUE(equal_on_all_ranks(flat(*model))) << step;
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

TEST(ErrorFeedback, KeepsWhatIsBelowTheSmallestWireNumber) {
  const auto moved = [](const Precision& precision) {
    const auto model = std::make_shared<OneWeight>(at::zeros({70}));
    Trainer trainer(runtime(), model, SGD(1.0), TrainerOptions().precision(precision));
    for (int i = 0; i < 64; ++i) {
      trainer.step([&]() -> Loss { return model->weight.sum() * 1e-8; });
    }
    EXPECT_TRUE(trainer.replicas_agree());
    return -model->weight.mean().item<double>();
  };
  const auto fp16_wire =
      Precision::O0().wire(at::kHalf).loss_scale(amp::LossScalerOptions::fixed(1.0));
  EXPECT_EQ(moved(fp16_wire), 0.0);
  EXPECT_NEAR(moved(fp16_wire.error_feedback()), 64e-8, 6e-8);  // one wire number at most
}

TEST(ErrorFeedback, BringsTheTrajectoryNearerToThatOfAnFp32Wire) {
  const auto masters = [](const Precision& precision) {
    return run(SGD(0.05), TrainerOptions().precision(precision), 60, false).masters;
  };
  const at::Tensor exact = masters(Precision::O0());
  const auto brain = Precision::O0().wire(at::kBFloat16);
  const double plain = testing::relative_distance(masters(brain), exact);
  const double fed_back = testing::relative_distance(masters(brain.error_feedback()), exact);
  ::testing::Test::RecordProperty("plain", std::to_string(plain));
  ::testing::Test::RecordProperty("fed_back", std::to_string(fed_back));
  if (runtime().size() == 1) {  // nothing but this rank's own rounding
    EXPECT_LT(fed_back, plain / 3) << plain;
  } else {
    EXPECT_LT(fed_back, plain) << plain;
  }
}

TEST(ErrorFeedback, ASkipChangesNothingOfIt) {
  for (const int64_t accumulate : {1, 2}) {
    const auto options =
        TrainerOptions()
            .precision(
                Precision::O2().loss_scale(amp::LossScalerOptions::fixed(256)).error_feedback())
            .accumulate(accumulate);
    const Outcome skipped = run(AdamW(1e-2), options);
    Outcome clean = run(AdamW(1e-2), options, 12, false);
    clean.norms = skipped.norms;
    expect_same(skipped, clean, "");
    EXPECT_GT(skipped.memory.residuals, 0);
  }
}

TEST(ErrorFeedback, FollowsTheLossScale) {
  // With growth after every update, the residual of one scale is fed back at the next.
  const auto model = std::make_shared<OneWeight>(at::zeros({64}));
  const auto growing = amp::LossScalerOptions().init_scale(1).growth_interval(1).max_scale(64);
  Trainer trainer(runtime(), model, SGD(1.0),
                  TrainerOptions().precision(
                      Precision::O0().wire(at::kHalf).loss_scale(growing).error_feedback()));
  const double gradient = 1.0 + 0x1p-12;  // a quarter of fp16's last place is lost
  for (int i = 1; i <= 16; ++i) {
    trainer.step([&]() -> Loss { return model->weight.sum() * gradient; });
    EXPECT_NEAR(-model->weight.mean().item<double>(), i * gradient, 0x1p-11 * 1.01) << i;
  }
  EXPECT_EQ(trainer.loss_scale(), 64);
}

}  // namespace
}  // namespace lockstep
