// What recipes for mixed precision promise of memory and accuracy, on small models.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "runtime/across_ranks.h"

namespace lockstep {
namespace {

constexpr int kLayers = 24;

/// Peak bytes of the activations of one step of layers that are narrow beside the batch.
int64_t peak_of_a_step(Runtime& runtime, const Precision& precision) {
  torch::nn::Sequential model;
  for (int layer = 0; layer < kLayers; ++layer) {
    model->push_back(torch::nn::Linear(64, 64));
    model->push_back(torch::nn::ReLU());
  }
  model->push_back(torch::nn::Linear(64, 1));
  Trainer trainer(runtime, model, SGD(1e-3), TrainerOptions().precision(precision));
  const at::Tensor x = at::ones({2048, 64});
  const auto loss = [&] { return model->forward(x).to(at::kFloat).square().mean(); };
  trainer.step(loss);
  const MemoryMeter meter(at::kCPU);
  trainer.step(loss);
  return meter.peak();
}

TEST(SixteenBitModels, ActivationsIn16BitsTakeAboutHalfTheMemory) {
  Runtime runtime = Runtime::solo(RuntimeOptions().threads(1));
  const auto fp32 = static_cast<double>(peak_of_a_step(runtime, Precision::O0()));
  EXPECT_GT(fp32, kLayers * 2048 * 64 * 4);
  for (const Precision& precision : {Precision::O1(at::kBFloat16), Precision::O2(at::kBFloat16)}) {
    const auto half = static_cast<double>(peak_of_a_step(runtime, precision));
    EXPECT_LT(half, 0.65 * fp32) << precision.describe();
    EXPECT_GT(half, 0.4 * fp32) << precision.describe();
  }
}

TEST(SixteenBitModels, AModelThatIsHalfAlreadyTrainsAtEveryLevel) {
  Runtime runtime = Runtime::solo(RuntimeOptions().threads(1));
  const at::Tensor x = testing::drawn_on_host({16, 4}, 5);
  const at::Tensor y = x.sum(1, /*keepdim=*/true);
  for (const Precision& precision :
       {Precision::O0(), Precision::O1(), Precision::O2(), Precision::O3()}) {
    torch::nn::Sequential model(torch::nn::Linear(4, 16), torch::nn::Tanh(),
                                torch::nn::Linear(16, 1));
    model->to(at::kHalf);
    Trainer trainer(runtime, model, AdamW(1e-2), TrainerOptions().precision(precision));
    double first = 0.0;
    double last = 0.0;
    for (int update = 0; update < 60; ++update) {
      last = trainer.step([&] { return (model->forward(x).to(at::kFloat) - y).square().mean(); })
                 .loss();
      first = update == 0 ? last : first;
    }
    EXPECT_LT(last, 0.3 * first) << precision.describe();
  }
}

/// The mean loss of the last ten of 80 updates of a convolutional net whose batch norm keeps the
/// statistics that it has, in eval().
double loss_of_fine_tuning(Runtime& runtime, const Precision& precision) {
  at::manual_seed(21);
  torch::nn::BatchNorm2d norm(8);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)), norm,
                              torch::nn::ReLU(), torch::nn::Flatten(),
                              torch::nn::Linear(8 * 64, 4));
  norm->running_mean.uniform_(-0.2, 0.2);
  norm->running_var.uniform_(0.5, 2.0);
  const at::Tensor mean = norm->running_mean.clone();
  const at::Tensor images = testing::drawn_on_host({16, 3, 8, 8}, 1);
  const at::Tensor labels = at::arange(16) % 4;
  Trainer trainer(runtime, model, SGD(0.05).momentum(0.9), TrainerOptions().precision(precision));
  norm->eval();
  double sum = 0.0;
  for (int update = 0; update < 80; ++update) {
    const StepReport report =
        trainer.step([&] { return at::cross_entropy_loss(model->forward(images), labels); });
    sum += update >= 70 ? report.loss() : 0.0;
  }
  EXPECT_TRUE(at::equal(norm->running_mean, mean)) << "the statistics moved";
  return sum / 10;
}

TEST(SixteenBitModels, FineTuningWithFrozenBatchNormEndsAlikeIn16Bits) {
  Runtime runtime = Runtime::solo(RuntimeOptions().threads(1));
  const double fp32 = loss_of_fine_tuning(runtime, Precision::O0());
  EXPECT_LT(fp32, 0.7) << "it learned";
  EXPECT_NEAR(loss_of_fine_tuning(runtime, Precision::O1(at::kBFloat16)) / fp32, 1.0, 0.05);
  EXPECT_NEAR(loss_of_fine_tuning(runtime, Precision::O2(at::kBFloat16)) / fp32, 1.0, 0.05);
}

}  // namespace
}  // namespace lockstep
