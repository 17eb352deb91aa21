// Facts and traps of mixed precision that need a whole step, on several ranks.
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/runtime/data_parallel.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

struct Normed : torch::nn::Module {
  Normed()
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})))),
        mlp(register_module("mlp", std::make_shared<Mlp>())) {
    to(device());
  }
  at::Tensor loss(const testing::Batch& batch) {
    return mlp->loss(norm->forward(batch.x), batch.y);
  }
  torch::nn::LayerNorm norm;
  std::shared_ptr<Mlp> mlp;
};

TEST(OverflowSkips, GradientsOfMixedDtypesAreGroupedAndAnInfInEitherSkips) {
  const auto model = std::make_shared<Normed>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().precision(half_precision()));
  ASSERT_EQ(model->norm->weight.scalar_type(), at::kFloat);
  ASSERT_EQ(model->mlp->first->weight.scalar_type(), at::kHalf);
  int64_t clean = 0;
  for (const auto& planted : {model->norm->weight, model->mlp->first->weight, at::Tensor()}) {
    const auto report = trainer.step([&] {
      at::Tensor loss = model->loss(mlp_batch(clean, runtime().rank()));
      if (planted.defined() && runtime().rank() == 1) {
        loss = loss + planted.to(at::kFloat).sum() * overflow_factor;
      }
      return Loss(loss);
    });
    EXPECT_EQ(report.skipped(), planted.defined());
    clean += report.skipped() ? 0 : 1;
    EXPECT_EQ(trainer.updates(), clean);
  }
}

struct SparseRows : torch::nn::Module {
  SparseRows()
      : rows(register_module(
            "rows", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)))) {
    to(device());
  }
  torch::nn::Embedding rows;
};

TEST(OverflowSkips, SparseHalfGradientsThatOverflowOnlyInTheirSum) {
  for (const bool overflows : {true, false}) {
    const auto model = std::make_shared<SparseRows>();
    Trainer trainer(runtime(), model, SGD(1e-9),
                    TrainerOptions()
                        .precision(Precision::O2().loss_scale(amp::LossScalerOptions::fixed(1.0)))
                        .densify_sparse(true));
    ASSERT_EQ(model->rows->weight.scalar_type(), at::kHalf);
    const auto ids =
        at::tensor({1, overflows ? 1 : 2}, at::kLong).to(device());  // 64000 twice, or once each
    const auto report = trainer.step(
        [&] { return Loss((model->rows->forward(ids).to(at::kFloat) * 64000.0).sum()); });
    EXPECT_EQ(report.skipped(), overflows);
  }
}

TEST(OverflowSkips, AnInfOnOneRankSkipsAndHalvesOnAllInAHandWrittenLoop) {
  Mlp model;
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  DataParallel parallel(runtime().communicator(), Model(model));
  amp::LossScaler scaler(amp::LossScalerOptions().init_scale(1024), runtime().control(), device());
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    const bool bad = step % 2 == 0;
    {
      // Only this rank's gradients are looked at: nothing but the scaler tells the others.
      const auto local = parallel.no_sync();
      const auto loss =
          scaled_loss(model, 0, bad && runtime().rank() == 1 ? overflow_factor : 1.0F);
      scaler.scale(loss.tensor()).backward();
    }
    EXPECT_EQ(scaler.step(optimizer), !bad);
    scaler.update();
    EXPECT_EQ(scaler.value(), std::ldexp(1024.0, -(step / 2 + 1)));
    EXPECT_TRUE(equal_on_all_ranks(scaler.scale_tensor()));
  }
  parallel.abandon();
}

TEST(HandWrittenLoops, OneRanksMisuseIsRaisedOnEveryRank) {
  const auto weight = testing::ones({3}).requires_grad_(true);
  torch::optim::SGD optimizer(std::vector<at::Tensor>{weight}, torch::optim::SGDOptions(0.1));
  amp::LossScaler scaler({}, runtime().control(), device());
  const auto other = testing::ones({3}).requires_grad_(true);
  scaler.scale((runtime().rank() == 1 ? other : weight).sum()).backward();
  const auto message = testing::error_of([&] { scaler.step(optimizer); });
  EXPECT_THAT(message, ::testing::StartsWith("rank 1: "));
  EXPECT_THAT(message, ::testing::HasSubstr("no parameter of the optimizer has a gradient"));
}

TEST(OverflowSkips, AnUnchangedScaleIsNoProofOfAnUpdate) {
  const auto options =
      amp::LossScalerOptions::deepspeed().init_scale(256);  // forgives one overflow
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(
      runtime(), model, SGD(1.0),
      TrainerOptions().precision(Precision::O2().loss_scale(options)).schedule(WarmupLinear(4, 8)));
  const auto skipped = trainer.step([&] { return scaled_loss(*model, 0, overflow_factor); });
  EXPECT_TRUE(skipped.skipped());
  EXPECT_EQ(trainer.loss_scale(), 256) << "by the scale alone this was an update";
  EXPECT_EQ(skipped.learning_rate(), 0.25);
  EXPECT_EQ(trainer.step([&] { return scaled_loss(*model, 0); }).learning_rate(), 0.25)
      << "the warm-up has not moved";
}

TEST(OverflowSkips, RunsWithoutALossScaleSkipNonFiniteGradientsToo) {
  for (const Precision& precision :
       {Precision::O0(), Precision::O1(at::kBFloat16), Precision::O2(at::kBFloat16)}) {
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, AdamW(0.1), TrainerOptions().precision(precision));
    trainer.step([&] { return scaled_loss(*model, 0); });
    const at::Tensor before = flat_masters(trainer);
    const float planted = runtime().rank() == 1 ? std::nanf("") : 1.0F;
    const auto report = trainer.step([&] { return scaled_loss(*model, 1, planted); });
    EXPECT_TRUE(report.skipped());
    EXPECT_EQ(report.scale(), 1);
    EXPECT_TRUE(at::equal(flat_masters(trainer), before));
    EXPECT_FALSE(trainer.step([&] { return scaled_loss(*model, 2); }).skipped());
    EXPECT_TRUE(at::isfinite(flat_masters(trainer)).all().item<bool>());
  }
}

/// Plain LibTorch on the joined batch of all ranks: clip, then AdamW.
at::Tensor clipped_control(Mlp& model, double norm, double& measured) {
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.01));
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    at::Tensor loss = testing::zeros({});
    for (int rank = 0; rank < runtime().size(); ++rank) {
      const auto batch = mlp_batch(step, rank);
      loss = loss + model.loss(batch.x, batch.y) / runtime().size();
    }
    loss.backward();
    measured = torch::nn::utils::clip_grad_norm_(model.parameters(), norm);
    optimizer.step();
  }
  return testing::flat(model.parameters());
}

TEST(MixedPrecision, ClippingAndTheReportedNormSeeUnscaledGradientsInTheFusedUpdate) {
  constexpr double norm = 0.05;
  at::manual_seed(4);
  Mlp control;
  const auto model = std::make_shared<Mlp>();
  testing::copy_state(control, *model);
  const auto precision = Precision::O0().loss_scale(amp::LossScalerOptions::fixed(65536.0));
  Trainer trainer(runtime(), model, AdamW(0.01),
                  TrainerOptions().precision(precision).clip_grad_norm(norm));
  testing::copy_state(*model, control);  // rank 0's
  double measured = 0.0;
  double reported = 0.0;
  for (int step = 0; step < 4; ++step) {
    reported = trainer.step([&] { return scaled_loss(*model, step); }).grad_norm();
  }
  const at::Tensor expected = clipped_control(control, norm, measured);
  EXPECT_NEAR(reported, measured, 1e-5 * measured);
  EXPECT_GT(measured, 2 * norm) << "nothing was clipped";
  EXPECT_LT(testing::relative_distance(flat_masters(trainer), expected), 1e-5);
}

TEST(MixedPrecision, LossesAndLongSumsAreInFp32) {
  const auto logits = testing::tensor({0.0F, 30.0F}).view({1, 2}).to(at::kHalf);
  const auto target = testing::zeros({1}, at::kLong);
  EXPECT_TRUE(at::isinf(at::log(at::softmax(logits, -1))).any().item<bool>());
  EXPECT_TRUE(at::isinf(testing::full({70000}, 2.0, at::kHalf).sum()).item<bool>());
  const amp::Autocast region(device().type(), at::kHalf);
  const auto loss = at::cross_entropy_loss(logits, target);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_EQ(loss.item<float>(), 30.0F);
  const auto far = testing::full({70000}, 2.0, at::kHalf);
  EXPECT_EQ(at::mse_loss(far, at::zeros_like(far), at::Reduction::Sum).item<float>(), 280000.0F);
}

struct Rows : torch::nn::Module {
  Rows() : rows(register_module("rows", torch::nn::Embedding(2, 1))) {
    to(device());
    rows->weight.data().zero_();
  }
  torch::nn::Embedding rows;
};

TEST(MixedPrecision, AnEmbeddingsGradientAddsUpInFp32IfItIsKept) {
  const auto ids = testing::zeros({4097}, at::kLong);  // half adds ones up to 2048
  const auto gradient = [&](const Precision& precision) {
    const auto model = std::make_shared<Rows>();
    Trainer trainer(runtime(), model, SGD(1.0),
                    TrainerOptions().precision(
                        precision.loss_scale(amp::LossScalerOptions::fixed(1)).wire(at::kFloat)));
    trainer.step([&] { return Loss(model->rows->forward(ids).to(at::kFloat).sum()); });
    return -flat_masters(trainer)[0].item<float>();
  };
  EXPECT_NE(gradient(Precision::O2()), 4097.0F);
  EXPECT_EQ(gradient(Precision::O2().keep_fp32("rows")), 4097.0F);
}

// ---- The four bugs of the source notes: plain LibTorch or a naive port fails, lockstep does not.

TEST(HalfPrecisionPitfalls, AnOptimizerBuiltBeforeMastersUpdatesDeadTensors) {
  // Naive: the optimizer is built first, then the model gets fp32 masters and half weights.
  torch::nn::Linear naive(4, 2);
  torch::optim::SGD optimizer(naive->parameters(), 0.5);
  std::vector<at::Tensor> masters;
  for (const at::Tensor& parameter : naive->parameters()) {
    masters.push_back(parameter.detach().clone().requires_grad_(true));
  }
  const at::Tensor before = masters[0].detach().clone();
  for (const at::Tensor& master : masters) {
    master.mutable_grad() = at::ones_like(master);
  }
  optimizer.step();
  EXPECT_TRUE(at::equal(masters[0], before)) << "the optimizer does not know the masters";

  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.5), TrainerOptions().precision(half_precision()));
  const at::Tensor start = flat_masters(trainer);
  trainer.step([&] { return scaled_loss(*model, 0); });
  EXPECT_FALSE(at::equal(flat_masters(trainer), start));
  EXPECT_TRUE(testing::is_cast_of_masters(*model, trainer));
}

TEST(MixedPrecision, HooksSetBeforeTheConversionHearOfNothing) {
  // Naive: wrap first, then replace the parameters by half ones.
  torch::nn::Linear naive(4, 2);
  int heard = 0;
  naive->weight.register_hook([&](const at::Tensor&) { ++heard; });
  naive->weight = naive->weight.detach().to(at::kHalf).requires_grad_(true);
  (naive->weight.to(at::kFloat).sum()).backward();
  EXPECT_EQ(heard, 0);

  // Trainer converts the parameters that are there, and takes the gradients of the converted ones.
  const auto model = std::make_shared<Mlp>();
  model->first->weight.register_hook([&](const at::Tensor&) { ++heard; });
  Trainer trainer(runtime(), model, SGD(0.5), TrainerOptions().precision(half_precision()));
  const at::Tensor start = model->first->weight.detach().clone();
  trainer.step([&] { return scaled_loss(*model, 0); });
  EXPECT_EQ(heard, 1);
  EXPECT_FALSE(at::equal(model->first->weight, start));
}

struct BatchNormed : torch::nn::Module {
  BatchNormed() : norm(register_module("norm", torch::nn::BatchNorm1d(4))) {
    inner = register_module("inner", std::make_shared<Mlp>());
    to(device());
  }
  at::Tensor loss(const testing::Batch& batch) {
    return inner->loss(norm->forward(batch.x), batch.y);
  }
  torch::nn::BatchNorm1d norm;
  std::shared_ptr<Mlp> inner;
};

TEST(HalfPrecisionPitfalls, FineTuningWithFrozenBatchNormStatisticsInHalf) {
  const auto batch = mlp_batch(0, runtime().rank());
  BatchNormed plain;
  plain.to(torch::kHalf);
  plain.norm->eval();
  EXPECT_ANY_THROW(plain.norm->forward(batch.x));

  for (const Precision& precision : {half_precision(), Precision::O2(at::kBFloat16)}) {
    const auto model = std::make_shared<BatchNormed>();
    model->norm->running_mean.fill_(0.5);
    model->norm->eval();
    Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().precision(precision));
    EXPECT_FALSE(trainer.step([&] { return Loss(model->loss(batch)); }).skipped());
    EXPECT_EQ(model->norm->running_mean.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(model->norm->running_mean, testing::full({4}, 0.5)));
  }
}

TEST(HalfPrecisionPitfalls, AdamsEpsVanishesInPureHalf) {
  const auto weight = testing::ones({3}, at::kHalf).requires_grad_(true);
  torch::optim::Adam naive(std::vector<at::Tensor>{weight}, torch::optim::AdamOptions(1e-3));
  weight.mutable_grad() = testing::zeros({3}, at::kHalf);
  naive.step();
  EXPECT_TRUE(at::isnan(weight).all().item<bool>());

  for (const Precision& precision : {Precision::O2(), Precision::O3()}) {
    const auto model = std::make_shared<testing::OneWeight>(testing::ones({3}));
    Trainer trainer(
        runtime(), model, Adam(1e-3),
        TrainerOptions().precision(precision.loss_scale(amp::LossScalerOptions::fixed(1.0))));
    EXPECT_FALSE(trainer.step([&] { return Loss((model->weight * 0.0).sum()); }).skipped());
    EXPECT_TRUE(at::equal(model->weight, testing::ones({3}, at::kHalf)));
  }
}

TEST(HalfPrecisionPitfalls, KeepBatchNormFp32IsNoErrorUnderO1) {
  // A port of Apex's check refuses the option at O1, though norms are in fp32 there anyway.
  const auto apex = [](const std::string& level, std::optional<bool> keep_batchnorm_fp32) {
    if (level == "O1" && keep_batchnorm_fp32.has_value()) {
      throw std::runtime_error("With opt_level O1, keep_batchnorm_fp32 must be None");
    }
  };
  EXPECT_THROW(apex("O1", true), std::runtime_error);

  const auto model = std::make_shared<BatchNormed>();
  Trainer trainer(
      runtime(), model, SGD(0.1),
      TrainerOptions().precision(Precision::O1(at::kBFloat16).keep_batchnorm_fp32(true)));
  EXPECT_FALSE(
      trainer.step([&] { return Loss(model->loss(mlp_batch(0, runtime().rank()))); }).skipped());
  EXPECT_EQ(model->norm->weight.scalar_type(), at::kFloat);
  EXPECT_EQ(model->norm->running_var.scalar_type(), at::kFloat);
}

// ---- Every level learns.

TEST(MixedPrecision, EveryLevelConvergesOnAToyTask) {
  const auto scale = amp::LossScalerOptions().init_scale(128);
  const auto final_loss = [&](const Precision& precision) {
    at::manual_seed(21);
    const auto model = std::make_shared<Mlp>(16);
    Trainer trainer(runtime(), model, AdamW(2e-2).weight_decay(0),
                    TrainerOptions().precision(precision));
    const auto x = drawn({32, 4}, static_cast<uint64_t>(3 + runtime().rank()));
    const auto y = at::stack({at::tanh(x.select(1, 0) - x.select(1, 1)), 0.5 * x.select(1, 2)}, 1);
    double loss = 0.0;
    for (int step = 0; step < 150; ++step) {
      loss = trainer.step([&] { return Loss(model->loss(x, y)); }).loss();
    }
    return loss;
  };
  for (const Precision& precision :
       {Precision::O0(), Precision::O0().wire(at::kHalf).loss_scale(scale),
        Precision::O1().loss_scale(scale), Precision::O1(at::kBFloat16),
        Precision::O2().loss_scale(scale), Precision::O2(at::kBFloat16),
        Precision::O3().loss_scale(amp::LossScalerOptions::fixed(128))}) {
    EXPECT_LT(final_loss(precision), 0.05) << precision.describe();
  }
}

}  // namespace
}  // namespace lockstep
