// Where an overflow came from: planted ones are named by rank, module, operator and parameter.
#include <ATen/autocast_mode.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/normalization.h>

#include "error_of.h"
#include "runtime/temporary_folder.h"
#include "runtime/trainer_runs.h"
#include "runtime/windows_late.h"
#include "test_names.h"
#include "working_directory.h"

namespace lockstep {

using namespace detail;

namespace {

/// An encoder block as T5 has it: no biases, normalisation by the root mean square, a wide network
/// whose second product, wo, is the one that leaves fp16's range.
struct EncoderBlock : torch::nn::Module {
  static constexpr int64_t width = 8;

  EncoderBlock()
      : norm_weight(register_parameter("norm_weight", at::ones({width}))),
        q(register_module("q", product(width, width))),
        k(register_module("k", product(width, width))),
        v(register_module("v", product(width, width))),
        wi(register_module("wi", product(width, 4 * width))),
        wo(register_module("wo", product(4 * width, width))) {
    to(device());
    const at::NoGradGuard no_grad;
    wi->weight.copy_(drawn({4 * width, width}, 1));
    wo->weight.copy_(drawn({width, 4 * width}, 2).abs().clamp_max(1.0) * 3e4);
  }

  static torch::nn::Linear product(int64_t from, int64_t to) {
    return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false));
  }
  at::Tensor normed(const at::Tensor& x) const {
    const auto wide = x.to(at::kFloat);
    return wide * at::rsqrt(wide.square().mean(-1, true) + 1e-6) * norm_weight;
  }
  at::Tensor forward(at::Tensor x) {
    const auto n = normed(x);
    const auto scores = q->forward(n).matmul(k->forward(n).transpose(1, 2));
    x = x + at::softmax(scores.to(at::kFloat), -1).matmul(v->forward(n).to(at::kFloat));
    return x + wo->forward(at::relu(wi->forward(normed(x))));
  }

  at::Tensor norm_weight;
  torch::nn::Linear q, k, v, wi, wo;
};

struct Encoder : torch::nn::Module {
  Encoder() : block(register_module("block", std::make_shared<EncoderBlock>())) {}
  at::Tensor loss(const at::Tensor& x) {
    return block->normed(block->forward(x)).square().mean() +
           block->normed(block->forward(x)).mean();
  }
  std::shared_ptr<EncoderBlock> block;
};

at::Tensor parameter_sum(const torch::nn::Module& model) {
  at::Tensor sum = testing::zeros({});
  for (const at::Tensor& parameter : model.parameters()) {
    sum = sum + 1e-3 * parameter.to(at::kFloat).sum();
  }
  return sum;
}

/// Runs the block on the last rank; the others' losses are harmless.
at::Tensor encoder_loss(Encoder& model) {
  if (runtime().rank() == runtime().size() - 1) {
    return model.loss(drawn({2, 3, EncoderBlock::width}, 5));
  }
  return parameter_sum(model);
}

TrainerOptions diagnosed(const Precision& precision, int64_t after = 1) {
  return TrainerOptions().precision(precision).diagnose_after_skips(after);
}

TEST(Diagnosis, AnEncoderBlockWithALargeWoIsDiagnosedAndCuredByKeepFp32) {
  {
    // Plain LibTorch: the loss is NaN, with no word of where from.
    Encoder plain;
    at::autocast::set_autocast_enabled(device().type(), true);
    at::autocast::set_autocast_dtype(device().type(), at::kHalf);
    const bool finite = at::isfinite(encoder_loss(plain)).item<bool>();
    at::autocast::set_autocast_enabled(device().type(), false);
    at::autocast::clear_cache();
    EXPECT_EQ(finite, runtime().rank() != runtime().size() - 1);
  }
  const auto scale = amp::LossScalerOptions().init_scale(64);
  for (const Precision& precision : {Precision::O1().loss_scale(scale).wire(at::kFloat),
                                     Precision::O2().loss_scale(scale).wire(at::kFloat)}) {
    const auto model = std::make_shared<Encoder>();
    Trainer trainer(runtime(), model, SGD(1e-3), diagnosed(precision));
    const auto bad = [&] { return Loss(encoder_loss(*model)); };
    trainer.step([&] { return Loss(parameter_sum(*model)); });
    for (int64_t i = 0; i <= windows_late(); ++i) {
      EXPECT_TRUE(trainer.step(bad).skipped());
      EXPECT_EQ(trainer.diagnosis(), "");
    }
    EXPECT_TRUE(trainer.step(bad).skipped());
    EXPECT_THAT(trainer.diagnosis(), HasSubstr(c10::str("rank ", runtime().size() - 1, ", ")));
    EXPECT_THAT(trainer.diagnosis(), Not(HasSubstr("rank 0, ")));
    EXPECT_THAT(trainer.diagnosis(), HasSubstr("made by forward aten::"));
    EXPECT_THAT(trainer.diagnosis(), HasSubstr("of block.wo (reads block.wo.weight), Half"));
    EXPECT_THAT(trainer.diagnosis(), HasSubstr("keep_fp32(\"block.wo\")"));

    const auto cured = std::make_shared<Encoder>();
    Trainer again(runtime(), cured, SGD(1e-3), diagnosed(precision.keep_fp32("block.wo")));
    EXPECT_EQ(cured->block->wo->weight.scalar_type(), at::kFloat);
    for (int i = 0; i < 3; ++i) {
      const auto report = again.step([&] { return Loss(encoder_loss(*cured)); });
      EXPECT_FALSE(report.skipped());
      EXPECT_TRUE(std::isfinite(report.loss()));
    }
    EXPECT_EQ(again.diagnosis(), "");
  }
}

/// Passes values on; its gradient has an inf in it.
struct InfInBackward : torch::autograd::Function<InfInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] / at::zeros({}, gradients[0].options())};
  }
};

struct Deep : torch::nn::Module {
  Deep() {
    for (int i = 0; i < 9; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(4, 4)));
    }
    to(device());
  }
  at::Tensor loss(at::Tensor x, int planted) {
    for (int i = 0; i < 9; ++i) {
      x = at::tanh(layers[static_cast<size_t>(i)]->forward(x));
      x = i == planted ? InfInBackward::apply(x) : x;
    }
    return x.square().mean();
  }
  std::vector<torch::nn::Linear> layers;
};

TEST(OverflowDiagnosis, AnInfInOneLayersGradientIsNamedWithRankStepAndScale) {
  const auto model = std::make_shared<Deep>();
  const int culprit = runtime().size() - 1;
  Trainer trainer(runtime(), model, SGD(0.1),
                  diagnosed(Precision::O0().loss_scale(amp::LossScalerOptions().init_scale(512))));
  const auto step = [&](int planted) {
    return trainer.step([&] {
      return Loss(model->loss(drawn({3, 4}, 9), runtime().rank() == culprit ? planted : -1));
    });
  };
  step(-1);
  step(7);
  step(-1);  // replayed, and clean: still armed
  EXPECT_EQ(trainer.diagnosis(), "");
  EXPECT_TRUE(step(7).skipped());
  EXPECT_THAT(trainer.diagnosis(), HasSubstr("the update after 2 was skipped at loss scale 256"));
  EXPECT_THAT(trainer.diagnosis(), HasSubstr(c10::str("rank ", culprit, ", micro-batch 3: ")));
  EXPECT_THAT(trainer.diagnosis(), HasSubstr("made by backward aten::div"));
  EXPECT_THAT(trainer.diagnosis(), HasSubstr("layer7"));
  EXPECT_THAT(trainer.diagnosis(), HasSubstr("no loss scale can cure it"));
  EXPECT_TRUE(testing::equal_on_all_ranks(
      at::tensor(std::vector<uint8_t>(trainer.diagnosis().begin(), trainer.diagnosis().end()))));
}

TEST(Diagnosis, AScaleThatIsTooHighIsToldFromABug) {
  const auto scale = amp::LossScalerOptions().init_scale(std::ldexp(1.0, 40));
  for (const auto& precision :
       {Precision::O2().loss_scale(scale), Precision::O1().loss_scale(scale)}) {
    const auto own = std::make_shared<Mlp>();
    Trainer trainer(runtime(), own, SGD(0.1), diagnosed(precision));
    for (int64_t i = 0; i < 2 + windows_late(); ++i) {
      EXPECT_TRUE(trainer.step([&] { return scaled_loss(*own, 0); }).skipped());
    }
    EXPECT_THAT(trainer.diagnosis(), HasSubstr("rank 0, "));
    EXPECT_THAT(trainer.diagnosis(), HasSubstr("the loss scale is too high for this batch"));
  }
}

TEST(Diagnosis, AnOverflowBornOnTheWireIsToldFromOneBornInTheModel) {
  const auto model = std::make_shared<testing::OneWeight>(testing::ones({4}));
  const auto precision =
      Precision::O0().wire(at::kHalf).loss_scale(amp::LossScalerOptions::fixed(1.0));
  Trainer trainer(runtime(), model, SGD(1e-6), diagnosed(precision));
  for (int64_t i = 0; i < 2 + windows_late(); ++i) {
    // The gradient fits, the one per unit of weight does not.
    const auto report =
        trainer.step([&] { return Loss::sum((model->weight * 40000.0).sum(), 0.25); });
    EXPECT_TRUE(report.skipped());
  }
  EXPECT_THAT(trainer.diagnosis(), HasSubstr("born on the Half wire"));
  EXPECT_THAT(trainer.diagnosis(), HasSubstr("Not finite after it: weight"));
}

TEST(Diagnosis, OneRankMayAskAndTheBadBatchIsSaved) {
  const testing::TemporaryFolder folder;
  const auto model = std::make_shared<Mlp>();
  const testing::WorkingDirectory start(folder.path());
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().diagnosis_folder("."));
  const testing::WorkingDirectory elsewhere(folder.file("elsewhere"));
  if (runtime().rank() == 1) {
    trainer.diagnose_next_overflow();
  }
  const auto batch = mlp_batch(4, runtime().rank());
  trainer.step([&] { return Loss(model->loss(batch.x, batch.y)); });
  const float bad = runtime().rank() == 1 ? std::nanf("") : 1.0F;
  const auto spoilt = batch.x * bad;
  EXPECT_TRUE(trainer.step([&] { return Loss(model->loss(spoilt, batch.y)); }).skipped());
  EXPECT_THAT(trainer.diagnosis(), HasSubstr("rank 1, micro-batch 1: "));
  EXPECT_THAT(trainer.diagnosis(), HasSubstr("came from outside (the batch"));
  EXPECT_EQ(snapshot::exists(folder.path() + "/bad_batch.update1.rank1.safetensors"),
            runtime().rank() == 1);
}

TEST(Diagnosis, TheSkipBudgetEndsWithTheDiagnosis) {
  const auto model = std::make_shared<Mlp>();
  const auto options = amp::LossScalerOptions().init_scale(256).max_consecutive_skips(3);
  Trainer trainer(runtime(), model, SGD(0.1),
                  TrainerOptions().precision(Precision::O2().loss_scale(options)));
  const auto step = [&] {
    return trainer.step([&] { return scaled_loss(*model, 0, testing::overflow_factor); });
  };
  for (int64_t i = 0; i < 3 + windows_late(); ++i) {
    EXPECT_TRUE(step().skipped());
  }
  const auto message = error_of(step);
  EXPECT_THAT(message, HasSubstr("3 updates in a row were skipped"));
  EXPECT_THAT(message, HasSubstr(c10::str("rank 0, micro-batch ", 2 + windows_late(), ": ")));
}

TEST(Diagnosis, ALoopWithoutClosuresHearsOfTheParameters) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), diagnosed(Precision::O0()));
  for (int64_t i = 0; i < 2 + windows_late(); ++i) {
    trainer.backward(scaled_loss(*model, 0, testing::overflow_factor));
    EXPECT_TRUE(trainer.update().skipped());
  }
  EXPECT_THAT(trainer.diagnosis(), HasSubstr("cannot be replayed"));
  EXPECT_THAT(trainer.diagnosis(), HasSubstr("first.weight"));
  EXPECT_THAT(trainer.gradient_table(), HasSubstr("first.weight"));
  EXPECT_THAT(trainer.gradient_table(), HasSubstr("headroom bits"));
}

/// Dropout and batch norm: random numbers and buffers that a replay must leave alone.
struct Stateful : torch::nn::Module {
  Stateful() : inner(register_module("inner", std::make_shared<Mlp>())) {
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    to(device());
  }
  at::Tensor loss(const testing::Batch& batch) {
    return inner->loss(at::dropout(norm->forward(batch.x), 0.3, /*train=*/true), batch.y);
  }
  std::shared_ptr<Mlp> inner;
  torch::nn::BatchNorm1d norm{nullptr};
};

TEST(Diagnosis, ReplayedStepsHaveTheBitsOfOthers) {
  const auto run = [&](bool armed) {
    at::manual_seed(17);
    const auto model = std::make_shared<Stateful>();
    Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().accumulate(2));
    for (int step = 0; step < 8; ++step) {
      if (armed) {
        trainer.diagnose_next_overflow();
      }
      trainer.step([&] { return Loss(model->loss(mlp_batch(step, runtime().rank()))); });
    }
    return at::cat({flat_masters(trainer), model->norm->running_mean, model->norm->running_var});
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

}  // namespace
}  // namespace lockstep
