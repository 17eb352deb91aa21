// Kinds of models that a Trainer must take as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/trainer.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/rnn.h>

#include "runtime/models.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

bool has_hooks(const torch::nn::Module& model) {
  for (const at::Tensor& parameter : model.parameters()) {
    if (torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr) {
      return true;
    }
  }
  return false;
}

/// Steps until the loss is a tenth of what it was; the number of steps, at most 300.
template <typename Closure>
int steps_to_a_tenth(Trainer& trainer, const Closure& loss) {
  const double start = trainer.step(loss).loss();
  for (int step = 1; step < 300; ++step) {
    if (trainer.step(loss).loss() < start / 10) {
      return step;
    }
  }
  return 300;
}

TEST(TrainerModels, AScriptModuleTrains) {
  Runtime runtime = testing::solo_runtime();
  torch::jit::Module model("Line");
  model.register_parameter("weight", at::zeros({3}), /*is_buffer=*/false);  // the Trainer moves it
  model.attr("weight").toTensor().requires_grad_(true);
  model.define("def forward(self, x):\n  return x.matmul(self.weight)\n");
  Trainer trainer(runtime, model, SGD(0.1));
  const at::Tensor x = testing::randn({20, 3});
  const at::Tensor y = x.matmul(testing::tensor({1.0F, -2.0F, 3.0F}));
  const int steps = steps_to_a_tenth(
      trainer, [&]() -> Loss { return (model.forward({x}).toTensor() - y).square().mean(); });
  EXPECT_LT(steps, 300);
  EXPECT_EQ(trainer.masters()[0].first, "weight");
}

TEST(TrainerModels, AnLstmTrainsAndItsFlatWeightsFollow) {
  Runtime runtime = testing::solo_runtime();
  struct Net : torch::nn::Module {
    Net() : lstm(register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(2, 6)))) {
      to(testing::device());
    }
    torch::nn::LSTM lstm;
  };
  const auto model = std::make_shared<Net>();
  Trainer trainer(runtime, model, AdamW(0.02));
  const at::Tensor x = testing::randn({5, 3, 2});
  const at::Tensor y = 0.5 * at::tanh(testing::randn({5, 3, 6}));
  const auto output = [&] { return std::get<0>(model->lstm->forward(x)); };
  const at::Tensor before = output().detach();
  for (int step = 0; step < 20; ++step) {
    trainer.step([&]() -> Loss { return (output() - y).square().mean(); });
  }
  EXPECT_FALSE(at::allclose(output(), before));
  Net copy;  // of what parameters() say; forward() goes by the flat weights
  testing::copy_state(*model, copy);
  EXPECT_TRUE(at::allclose(std::get<0>(copy.lstm->forward(x)), output()));
}

TEST(TrainerModels, ChannelsLastWeightsKeepTheirLayout) {
  Runtime runtime = testing::solo_runtime();
  struct Net : torch::nn::Module {
    Net()
        : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)))),
          norm(register_module("norm", torch::nn::BatchNorm2d(4))) {
      to(testing::device());
    }
    at::Tensor forward(const at::Tensor& x) { return norm->forward(conv->forward(x)); }
    torch::nn::Conv2d conv;
    torch::nn::BatchNorm2d norm;
  };
  const auto model = std::make_shared<Net>();
  model->conv->weight.set_data(
      model->conv->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  const auto plain = std::make_shared<Net>();
  testing::copy_state(*model, *plain);
  Trainer trainer(runtime, model, SGD(0.1));
  Trainer reference(runtime, plain, SGD(0.1));
  for (int step = 0; step < 5; ++step) {
    const at::Tensor x = testing::randn({2, 3, 6, 6});
    trainer.step([&]() -> Loss { return model->forward(x).square().mean(); });
    reference.step([&]() -> Loss { return plain->forward(x).square().mean(); });
  }
  EXPECT_TRUE(model->conv->weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::allclose(model->conv->weight, plain->conv->weight, 1e-4, 1e-6));
  EXPECT_EQ(model->norm->num_batches_tracked.item<int64_t>(), 5);
}

TEST(TrainerModels, HalfModelsKeepNormsAndIntegersAndFreezeAlike) {
  Runtime runtime = testing::solo_runtime();
  struct Net : Mlp {
    Net() : norm(register_module("norm", torch::nn::BatchNorm1d(2))) { to(testing::device()); }
    torch::nn::BatchNorm1d norm;
  };
  const auto model = std::make_shared<Net>();
  model->first->bias.requires_grad_(false);
  model->norm->num_batches_tracked.fill_(2049);
  Trainer trainer(runtime, model, AdamW(), TrainerOptions().precision(Precision::O2()));
  EXPECT_EQ(model->first->weight.scalar_type(), at::kHalf);
  EXPECT_EQ(model->first->bias.scalar_type(), at::kHalf);
  EXPECT_EQ(model->norm->weight.scalar_type(), at::kFloat);
  EXPECT_EQ(model->norm->running_mean.scalar_type(), at::kFloat);
  EXPECT_EQ(model->norm->num_batches_tracked.item<int64_t>(), 2049);
  const at::Tensor frozen = model->first->bias.clone();
  trainer.step([&]() -> Loss {
    return model->norm->forward(model->forward(testing::randn({6, 4})))
        .to(at::kFloat)
        .pow(3)
        .mean();
  });
  EXPECT_EQ(model->norm->num_batches_tracked.item<int64_t>(), 2050);
  EXPECT_TRUE(at::equal(model->first->bias, frozen));
}

TEST(TrainerModels, TwoTrainersOneAfterTheOtherContinueTheModel) {
  Runtime runtime = testing::solo_runtime();
  const auto model = std::make_shared<Mlp>();
  const at::Tensor x = testing::randn({6, 4});
  const at::Tensor y = testing::randn({6, 2});
  const auto loss = [&]() -> Loss { return model->loss(x, y); };
  double reached = 0;
  {
    Trainer first(runtime, model, SGD(0.1));
    for (int step = 0; step < 20; ++step) {
      reached = first.step(loss).loss();
    }
    EXPECT_TRUE(has_hooks(*model));
  }
  EXPECT_FALSE(has_hooks(*model));
  Trainer second(runtime, model, SGD(0.1), TrainerOptions().precision(Precision::O2()));
  EXPECT_LT(second.step(loss).loss(), reached * 1.01);
}

TEST(TrainerModels, AModelBelongsToOneWrapperAtATime) {
  Runtime runtime = testing::solo_runtime();
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime, model, SGD(0.1));
  try {
    DataParallel parallel(runtime.communicator(), model);
    FAIL() << "wrapped twice";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("wrapped by another DataParallel or Trainer"));
  }
  EXPECT_TRUE(has_hooks(*model));
}

TEST(TrainerModels, DataParallelLeavesNoHooks) {
  Runtime runtime = testing::solo_runtime();
  const auto model = std::make_shared<Mlp>();
  { DataParallel parallel(runtime.communicator(), model); }
  EXPECT_FALSE(has_hooks(*model));
}

TEST(TrainerModels, DropoutStreamsStartFromTheRank) {
  Runtime runtime = testing::solo_runtime(RuntimeOptions().seed(7));
  const auto model = std::make_shared<Mlp>();
  const at::Tensor after_model = testing::randn({4});
  Trainer trainer(runtime, model, SGD(0.1));
  const at::Tensor first = testing::randn({4});
  runtime.seed_ranks();
  EXPECT_TRUE(at::equal(testing::randn({4}), first));
  EXPECT_FALSE(at::equal(after_model, first));
}

}  // namespace
}  // namespace lockstep
