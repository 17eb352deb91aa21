// What TrainerOptions::reproducible refuses, and what it needs from a loader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/amp/sync_batch_norm.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/sgd.h>

#include <cstdlib>
#include <memory>

#include "error_of.h"
#include "runtime/models.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

TrainerOptions reproducible(int64_t leaves = 4) {
  return TrainerOptions().reproducible(true).leaves(leaves);
}

std::string refusal(const TrainerOptions& options,
                    const std::shared_ptr<torch::nn::Module>& model = std::make_shared<Mlp>()) {
  return error_of([&] { Trainer(runtime(), model, AdamW(1e-2), options); });
}

void expect_accepted(const TrainerOptions& options,
                     const std::shared_ptr<torch::nn::Module>& model = std::make_shared<Mlp>(),
                     Runtime& on = runtime()) {
  EXPECT_NO_THROW(Trainer(on, model, AdamW(1e-2), options));
}

/// Sample i is 4 numbers i.
struct Numbers {
  int64_t count = 0;
  int64_t size() const { return count; }
  at::Tensor get(size_t index) const { return at::full({4}, static_cast<double>(index)); }
};

struct Normed : torch::nn::Module {
  Normed() : norm(register_module("norm", torch::nn::BatchNorm1d(4))) {}
  torch::nn::BatchNorm1d norm;
};

TEST(ReproducibleRefusals, NameTheOptionAndWhatToDo) {
  EXPECT_THAT(refusal(TrainerOptions().leaves(4)), HasSubstr("needs reproducible(true)"));
  EXPECT_THAT(refusal(reproducible(-1)), HasSubstr("leaves must be >= 0"));
  EXPECT_THAT(refusal(reproducible().uneven_data(true)), HasSubstr("LoaderOptions().leaves()"));
  EXPECT_THAT(refusal(reproducible().buffers(BufferPolicy::none)),
              HasSubstr("BufferPolicy::broadcast"));
  EXPECT_THAT(refusal(reproducible().precision(Precision::O0().predivide(2.0))),
              HasSubstr("predivide(1)"));
  EXPECT_THAT(refusal(reproducible().cuda_graph(true)), HasSubstr("cuda_graph(false)"));
  EXPECT_THAT(refusal(reproducible(4 * runtime().size()).accumulate(3)),
              HasSubstr("leave accumulate out"));
}

TEST(ReproducibleRefusals, ShardsOfAnOptimizerWhoseBitsDependOnThem) {
  const auto with = [](const OptimizerSpec& optimizer, bool shard) {
    return [&optimizer, shard] {
      Trainer(runtime(), std::make_shared<Mlp>(), optimizer, reproducible().shard_optimizer(shard));
    };
  };
  const LAMB lamb(1e-2);
  const TorchOptimizer torch([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::SGD>(std::move(masters), 0.1);
  });
  for (const OptimizerSpec* optimizer :
       {static_cast<const OptimizerSpec*>(&lamb), static_cast<const OptimizerSpec*>(&torch)}) {
    EXPECT_THAT(error_of(with(*optimizer, true)), HasSubstr("shard_optimizer(false)"));
    EXPECT_NO_THROW(with(*optimizer, false)());
  }
  expect_accepted(reproducible().shard_optimizer(true));
}

TEST(ReproducibleRefusals, RanksMustDivideTheLeaves) {
  if (runtime().size() > 1) {
    EXPECT_THAT(refusal(reproducible(3)), HasSubstr("3 leaves cannot be shared equally by 2"));
    EXPECT_THAT(error_of([&] { runtime().loader(Numbers{9}, LoaderOptions().leaves(3)); }),
                HasSubstr("3 leaves cannot be shared equally by 2"));
  }
  expect_accepted(reproducible(4));
  expect_accepted(reproducible(4).accumulate(4 / runtime().size()));
}

TEST(ReproducibleRefusals, TheNumberOfThreadsMustBeNamed) {
  EXPECT_TRUE(runtime().threads_are_named());  // OMP_NUM_THREADS of the tests
  const std::string asked = std::getenv("OMP_NUM_THREADS");
  unsetenv("OMP_NUM_THREADS");
  Runtime alone = Runtime::solo();
  Runtime with_threads = Runtime::solo(RuntimeOptions().threads(1));
  setenv("OMP_NUM_THREADS", asked.c_str(), 1);
  const auto model = std::make_shared<Mlp>();
  EXPECT_THAT(error_of([&] { Trainer(alone, model, AdamW(1e-2), reproducible()); }),
              HasSubstr("RuntimeOptions().threads(n)"));
  expect_accepted(reproducible(), model, with_threads);
}

TEST(ReproducibleRefusals, NameTheParameterOrLayer) {
  const auto wide = std::make_shared<Mlp>();
  wide->to(at::kDouble);
  EXPECT_THAT(refusal(reproducible(), wide), HasSubstr("parameter first.weight is fp64"));
  const auto normed = std::make_shared<Normed>();
  expect_accepted(reproducible(), normed);
  convert_sync_batchnorm(normed, runtime().communicator());
  EXPECT_THAT(refusal(reproducible(), normed), HasSubstr("norm.running_mean"));
}

TEST(ReproducibleRefusals, LoadersMustDealToTheSameLeavesAndStayInStep) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, AdamW(1e-2), reproducible(4));
  const auto step = [&](const at::Tensor& x) {
    return trainer.step([&] { return Loss(model->forward(x).square().mean()); });
  };
  const auto by_rank = [&] {
    for (auto& x : runtime().loader(Numbers{16}, LoaderOptions().batch_size(2))) {
      step(x);
    }
  };
  EXPECT_THAT(error_of(by_rank), HasSubstr("LoaderOptions().leaves(4)"));
  const auto leaves = LoaderOptions().batch_size(2).leaves(4);
  const auto skips_one = [&] {
    int64_t number = 0;
    for (auto& x : runtime().loader(Numbers{16}, leaves)) {
      if (number++ > 0) {
        step(x);
      }
    }
  };
  EXPECT_THAT(error_of(skips_one), HasSubstr("run one step for every batch"));
  for (auto& x : runtime().loader(Numbers{16}, leaves)) {
    step(x);
  }
  EXPECT_EQ(trainer.updates(), 2);
}

TEST(ReproducibleRefusals, BackwardAndWeightsThatCannotBeAdded) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, AdamW(1e-2), reproducible(runtime().size()));
  const auto loss = [&] { return model->forward(at::ones({2, 4})).sum(); };
  EXPECT_THAT(error_of([&] { trainer.backward(Loss(loss())); }), HasSubstr("step(closure)"));
  EXPECT_THAT(error_of([&] { trainer.step([&] { return Loss::sum(loss(), 0.1); }); }),
              HasSubstr("multiple of 2^-20"));
  EXPECT_TRUE(trainer.step([&] { return Loss::sum(loss(), 0.125); }).closes_update());
}

TEST(ReproducibleRefusals, AGradientThatDoesNotFitSkipsTheUpdateOnEveryRank) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(1e-2), reproducible(runtime().size()));
  const auto step = [&](double largest) {
    return trainer.step([&] {
      const double mine = runtime().rank() + 1 == runtime().size() ? largest : 1.0;
      return Loss(model->forward(at::ones({1, 4})).sum() * mine);  // the gradient of second.bias
    });
  };
  EXPECT_FALSE(step(16383.0).skipped());
  EXPECT_TRUE(step(16384.0).skipped());
  EXPECT_FALSE(step(1.0).skipped());
}

TEST(ReproducibleRefusals, GradientsThatNeverFitEndTheRunWithTheLimitAndItsCure) {
  const auto updates = [](const Precision& precision) {
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, AdamW(1.0),
                    reproducible(runtime().size()).precision(precision));
    for (int step = 0; step < 25; ++step) {
      trainer.step([&] { return Loss((model->forward(at::ones({8, 4})) - 1e5).square().mean()); });
    }
    return trainer.updates();
  };
  EXPECT_THAT(error_of([&] { updates(Precision::O0()); }),
              AllOf(HasSubstr("the gradient of parameter "), HasSubstr("is not below 16384"),
                    HasSubstr("loss_scale(amp::LossScalerOptions::fixed(1.0 / "),
                    Not(HasSubstr("born on the"))));
  EXPECT_EQ(updates(Precision::O0().loss_scale(amp::LossScalerOptions::fixed(1.0 / 1024))), 25);
}

/// Buffers of dtypes that have no mean; each forward changes them by its batch.
struct Counters : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    seen.add_(x[0][0].to(at::kLong));
    turned.mul_(at::complex(x[0][0], x[0][0]));
    is_positive.logical_xor_(x[0][0] > 0);
    return layer(x);
  }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 1));
  at::Tensor is_positive = register_buffer("is_positive", at::zeros({1}, at::kBool));
  at::Tensor turned = register_buffer("turned", at::full({}, 1.0, at::kComplexFloat));
  at::Tensor seen = register_buffer("seen", at::zeros({2}, at::kLong));
};

TEST(ReproducibleBuffers, OfDtypesWithoutAMeanAreThoseOfLeafZero) {
  const auto model = std::make_shared<Counters>();
  const int64_t leaves = 2 * runtime().size();
  Trainer trainer(runtime(), model, SGD(0.1), reproducible(leaves));
  for (int64_t turn = 0; turn < 2; ++turn) {
    const int64_t leaf = 2 * runtime().rank() + turn;  // a rank's leaves follow each other
    trainer.step([&] {
      const at::Tensor x = at::full({2, 4}, static_cast<double>(3 + leaf));
      return Loss(model->forward(x.to(at::kFloat)).mean());
    });
  }
  EXPECT_EQ(model->seen[1].item<int64_t>(), 3);
  EXPECT_EQ(at::view_as_real(model->turned)[1].item<float>(), 3.0F);
  EXPECT_TRUE(model->is_positive.item<bool>());
}

}  // namespace
}  // namespace lockstep
