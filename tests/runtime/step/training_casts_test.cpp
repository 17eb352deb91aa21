// Half weights and casts of weights within whole steps: regions that hold updates, and windows of
// micro-batches in which others update.
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/runtime/data_parallel.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/sgd.h>

#include <optional>

#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

std::optional<amp::Autocast> region() {
  return std::optional<amp::Autocast>(std::in_place, device().type(), at::kBFloat16);
}

/// The weights after twelve updates of a loop by hand.
at::Tensor trained_by_hand(bool one_region) {
  torch::manual_seed(1);
  const auto model = std::make_shared<Mlp>();
  DataParallel parallel(runtime().communicator(), model);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  amp::LossScaler scaler(amp::LossScalerOptions(), runtime().communicator(), device());
  const auto outer = one_region ? region() : std::nullopt;
  const at::Tensor before = flat(model->parameters()).clone();
  for (int64_t i = 0; i < 12; ++i) {
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const auto inner = one_region ? std::nullopt : region();
      const testing::Batch batch = mlp_batch(0, runtime().rank());
      loss = model->loss(batch.x, batch.y);
    }
    scaler.scale(loss).backward();
    parallel.finish();
    scaler.step(optimizer);
    scaler.update();
  }
  const at::Tensor after = flat(model->parameters());
  EXPECT_FALSE(at::equal(before, after));
  return after;
}

TEST(TrainingCasts, ALoopOfDataParallelInOneRegionTrains) {
  const at::Tensor weights = trained_by_hand(/*one_region=*/true);
  EXPECT_TRUE(at::equal(weights, trained_by_hand(/*one_region=*/false)));
  EXPECT_TRUE(equal_on_all_ranks(weights));
}

/// What the model gives with its weights of now, cast here.
at::Tensor expected(Mlp& model, const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  const amp::Autocast off(device().type(), at::kBFloat16, /*enabled=*/false);
  const auto cast = [](const at::Tensor& tensor) { return tensor.to(at::kBFloat16); };
  const auto layer = [&](torch::nn::Linear& linear, const at::Tensor& in) {
    return at::addmm(cast(linear->bias), cast(in), cast(linear->weight).t());
  };
  return layer(model.second, at::tanh(layer(model.first, x)));
}

/// One trainer's window of three micro-batches, in each of which it uses `other`, updated between
/// them by `update`.
template <typename Update>
void expect_windows_see(const std::shared_ptr<Mlp>& other, const Update& update) {
  const auto mine = std::make_shared<Mlp>();
  Trainer trainer(runtime(), mine, SGD(0.1),
                  TrainerOptions().precision(Precision::O1(at::kBFloat16)).accumulate(3));
  at::Tensor last;
  for (int64_t i = 0; i < 6; ++i) {
    const testing::Batch batch = mlp_batch(i, runtime().rank());
    trainer.step([&] {
      const at::Tensor judged = other->forward(batch.x);
      EXPECT_TRUE(at::equal(judged.detach(), expected(*other, batch.x))) << i;
      return Loss((mine->forward(batch.x) - judged.detach()).to(at::kFloat).square().mean());
    });
    update(i);
  }
}

TEST(TrainingCasts, AWindowOfMicroBatchesSeesWhatAnotherTrainerUpdates) {
  const auto other = std::make_shared<Mlp>();
  Trainer trainer(runtime(), other, SGD(0.5),
                  TrainerOptions().precision(Precision::O1(at::kBFloat16)));
  expect_windows_see(
      other, [&](int64_t i) { trainer.step([&] { return testing::scaled_loss(*other, i); }); });
}

TEST(TrainingCasts, AWindowOfMicroBatchesSeesWhatAnOptimizerUpdates) {
  const auto other = std::make_shared<Mlp>();
  torch::optim::SGD optimizer(other->parameters(), 0.5);
  expect_windows_see(other, [&](int64_t i) {
    optimizer.zero_grad();
    const testing::Batch batch = mlp_batch(i, 0);
    {
      const auto inner = region();
      other->loss(batch.x, batch.y).backward();
    }
    optimizer.step();
  });
}

/// A norm that gets the batch, and a layer after it.
struct NormFirst : torch::nn::Module {
  explicit NormFirst(torch::nn::AnyModule first)
      : norm(std::move(first)), linear(register_module("linear", torch::nn::Linear(4, 2))) {
    register_module("norm", norm.ptr());
    to(device());
  }
  at::Tensor loss(const testing::Batch& batch) {
    at::Tensor x = batch.x;
    if (norm.ptr()->as<torch::nn::InstanceNorm1dImpl>() != nullptr) {
      x = norm.forward<at::Tensor>(x.unsqueeze(0)).squeeze(0);
    } else {
      x = norm.forward<at::Tensor>(x);
    }
    return (linear->forward(x).to(at::kFloat) - batch.y).square().mean();
  }
  torch::nn::AnyModule norm;
  torch::nn::Linear linear;
};

TEST(TrainingCasts, NormsOfO3AndOfO2WithoutFp32NormsTakeFp32Batches) {
  using torch::nn::AnyModule;
  for (const Precision& precision : {Precision::O3(at::kBFloat16), Precision::O3(at::kHalf),
                                     Precision::O2(at::kBFloat16).keep_batchnorm_fp32(false),
                                     testing::half_precision().keep_batchnorm_fp32(false)}) {
    for (AnyModule norm :
         {AnyModule(torch::nn::BatchNorm1d(4)),
          AnyModule(torch::nn::LayerNorm(torch::nn::LayerNormOptions({4}))),
          AnyModule(torch::nn::GroupNorm(2, 4)),
          AnyModule(torch::nn::InstanceNorm1d(
              torch::nn::InstanceNorm1dOptions(5).affine(true).track_running_stats(true)))}) {
      SCOPED_TRACE(precision.describe() + ", " + norm.ptr()->name());
      const auto model = std::make_shared<NormFirst>(norm);
      Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().precision(precision));
      ASSERT_NE(norm.ptr()->parameters()[0].scalar_type(), at::kFloat);
      double first = 0.0;
      double last = 0.0;
      for (int64_t i = 0; i < 20; ++i) {
        const auto report =
            trainer.step([&] { return Loss(model->loss(mlp_batch(0, runtime().rank()))); });
        EXPECT_FALSE(report.skipped());
        last = report.loss();
        first = i == 0 ? last : first;
      }
      EXPECT_LT(last, first);
      EXPECT_TRUE(trainer.replicas_agree());
    }
  }
}

}  // namespace
}  // namespace lockstep
