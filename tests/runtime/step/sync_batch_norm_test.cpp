// Batch norm over the batches of all ranks.
#include <lockstep/amp/sync_batch_norm.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include "error_of.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

constexpr int64_t channels = 3;

/// Rank r has r + 2 rows, of its own mean; rank 1 none, if asked.
at::Tensor rows_of(int rank, bool one_empty, bool image) {
  const int64_t rows = one_empty && rank == 1 ? 0 : rank + 2;
  const std::vector<int64_t> sizes =
      image ? std::vector<int64_t>{rows, channels, 4, 5} : std::vector<int64_t>{rows, channels};
  return drawn(sizes, static_cast<uint64_t>(rank + 1)) * 3.0 + 10.0 * rank;
}

at::Tensor joined(bool one_empty, bool image) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < runtime().size(); ++rank) {
    all.push_back(rows_of(rank, one_empty, image));
  }
  return at::cat(all);
}

/// A loss that every element counts in differently.
at::Tensor loss_of(const at::Tensor& y, const at::Tensor& x) {
  return (y.to(at::kFloat) * at::sin(x.detach().to(at::kFloat))).sum();
}

template <typename Norm>
void set_affine(Norm& norm) {
  const at::NoGradGuard no_grad;
  norm->weight.copy_(testing::tensor({0.5F, 1.0F, 2.0F}));
  norm->bias.copy_(testing::tensor({1.0F, 0.0F, -1.0F}));
}

/// The converted layer on this rank's rows against the plain one on all rows.
template <typename Norm>
void expect_parity(bool one_empty, bool image) {
  Norm plain(channels);
  Norm synced(channels);
  plain->to(device());
  synced->to(device());
  set_affine(plain);
  set_affine(synced);
  ASSERT_EQ(convert_sync_batchnorm(Model(*synced), runtime().communicator()), 1);
  const auto all = joined(one_empty, image).requires_grad_(true);
  const auto mine = rows_of(runtime().rank(), one_empty, image).requires_grad_(true);
  const auto expected = plain->forward(all);
  const auto y = synced->forward(mine);
  loss_of(expected, all).backward();
  loss_of(y, mine).backward();

  int64_t first = 0;
  for (int rank = 0; rank < runtime().rank(); ++rank) {
    first += rows_of(rank, one_empty, image).size(0);
  }
  const auto own = [&](const at::Tensor& t) { return t.narrow(0, first, mine.size(0)); };
  EXPECT_TRUE(at::allclose(y, own(expected), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(mine.grad(), own(all.grad()), 1e-4, 1e-5));
  Communicator ranks = runtime().communicator();
  for (const auto& [ours, theirs] :
       {std::pair(synced->weight, plain->weight), std::pair(synced->bias, plain->bias)}) {
    const at::Tensor sum = ours.grad().clone();
    ranks.all_reduce(sum).wait();
    EXPECT_TRUE(at::allclose(sum, theirs.grad(), 1e-4, 1e-4));
  }
  EXPECT_TRUE(at::allclose(synced->running_mean, plain->running_mean, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(synced->running_var, plain->running_var, 1e-5, 1e-6));
  EXPECT_TRUE(equal_on_all_ranks(synced->running_mean));
  EXPECT_TRUE(equal_on_all_ranks(synced->running_var));
}

TEST(SyncBatchNorm, EqualsOneLayerOnTheJoinedBatch) {
  expect_parity<torch::nn::BatchNorm1d>(false, false);
  expect_parity<torch::nn::BatchNorm2d>(false, true);
}

TEST(SyncBatchNorm, ARankMayHaveAnEmptyBatch) {
  expect_parity<torch::nn::BatchNorm2d>(true, true);
}

TEST(SyncBatchNorm, LayersWithoutWeightsAreNormalisedOverAllRanksToo) {
  torch::nn::BatchNorm1d plain(torch::nn::BatchNormOptions(channels).affine(false));
  torch::nn::BatchNorm1d synced(torch::nn::BatchNormOptions(channels).affine(false));
  plain->to(device());
  synced->to(device());
  ASSERT_EQ(convert_sync_batchnorm(Model(*synced), runtime().communicator()), 1);
  const auto mine = rows_of(runtime().rank(), false, false).requires_grad_(true);
  synced->forward(mine).square().sum().backward();
  EXPECT_TRUE(mine.grad().defined());
  plain->forward(joined(false, false));
  EXPECT_TRUE(at::allclose(synced->running_var, plain->running_var, 1e-5, 1e-6));
}

/// Far from 0, where sums of squares lose digits.
TEST(SyncBatchNorm, AnFp64ModelHasFp64Statistics) {
  for (const bool one_empty : {false, true}) {
    torch::nn::BatchNorm2d plain(channels);
    torch::nn::BatchNorm2d synced(channels);
    plain->to(device(), at::kDouble);
    synced->to(device(), at::kDouble);
    ASSERT_EQ(convert_sync_batchnorm(Model(*synced), runtime().communicator()), 1);
    const auto shifted = [](const at::Tensor& rows) {
      return (rows.to(at::kDouble) + 1e6).requires_grad_(true);
    };
    const auto all = shifted(joined(one_empty, true));
    const auto mine = shifted(rows_of(runtime().rank(), one_empty, true));
    const auto expected = plain->forward(all);
    const auto y = synced->forward(mine);
    EXPECT_EQ(y.scalar_type(), at::kDouble);
    const auto weighted = [](const at::Tensor& y, const at::Tensor& x) {
      return (y * at::sin(x.detach())).sum();
    };
    weighted(expected, all).backward();
    weighted(y, mine).backward();
    int64_t first = 0;
    for (int rank = 0; rank < runtime().rank(); ++rank) {
      first += rows_of(rank, one_empty, true).size(0);
    }
    const auto own = [&](const at::Tensor& t) { return t.narrow(0, first, mine.size(0)); };
    EXPECT_TRUE(at::allclose(y, own(expected), 1e-8, 1e-8));
    EXPECT_TRUE(at::allclose(mine.grad(), own(all.grad()), 1e-7, 1e-7));
    EXPECT_TRUE(at::allclose(synced->running_mean, plain->running_mean, 1e-12, 0));
    EXPECT_TRUE(at::allclose(synced->running_var, plain->running_var, 1e-9, 0));
    EXPECT_TRUE(equal_on_all_ranks(synced->running_mean));
    EXPECT_TRUE(equal_on_all_ranks(synced->running_var));
  }
}

TEST(SyncBatchNorm, StatisticsOfHalfInputsAreInFp32) {
  torch::nn::BatchNorm2d norm(channels);
  norm->to(device());
  convert_sync_batchnorm(Model(*norm), runtime().communicator());
  const auto x = (rows_of(runtime().rank(), false, true) * 1000.0).to(at::kHalf);
  const auto y = norm->forward(x);
  EXPECT_EQ(y.scalar_type(), at::kHalf);
  EXPECT_TRUE(at::isfinite(y).all().item<bool>());
  EXPECT_GT(norm->running_var.max().item<float>(), 65504.0F);
}

TEST(SyncBatchNorm, EvalNeverCommunicates) {
  torch::nn::BatchNorm1d norm(channels);
  torch::nn::BatchNorm1d plain(channels);
  norm->to(device());
  plain->to(device());
  convert_sync_batchnorm(Model(*norm), runtime().communicator());
  norm->eval();
  plain->eval();
  if (runtime().is_main()) {
    const auto x = rows_of(0, false, false);
    EXPECT_TRUE(at::equal(norm->forward(x), plain->forward(x)));
  }
}

TEST(SyncBatchNorm, OtherLayersAreLeftAlone) {
  torch::nn::BatchNorm1d converted(channels);
  torch::nn::BatchNorm1d plain(channels);
  converted->to(device());
  plain->to(device());
  convert_sync_batchnorm(Model(*converted), runtime().communicator());
  const auto x = rows_of(2, false, false).requires_grad_(true);
  if (runtime().is_main()) {
    const auto y = plain->forward(x);
    EXPECT_TRUE(at::allclose(y.mean(0), testing::zeros({channels}), 0, 1e-5));
    y.square().sum().backward();
    EXPECT_TRUE(x.grad().defined());
  }
}

TEST(SyncBatchNorm, RecomputeGivesTheSameGradientsAndMovesStatisticsOnce) {
  const auto run = [&](bool recompute) {
    at::manual_seed(5);
    torch::nn::Sequential model(torch::nn::Conv2d(channels, channels, 3),
                                torch::nn::BatchNorm2d(channels),
                                torch::nn::Conv2d(channels, 2, 1));
    model->to(device());
    convert_sync_batchnorm(Model(*model), runtime().communicator());
    const auto x = rows_of(runtime().rank(), false, true);
    const auto y = recompute ? checkpoint(model, x) : model->forward(x);
    y.square().sum().backward();
    std::vector<at::Tensor> result;
    for (const at::Tensor& parameter : model->parameters()) {
      result.push_back(parameter.grad().reshape({-1}));
    }
    for (const at::Tensor& buffer : model->buffers()) {
      result.push_back(buffer.to(at::kFloat).reshape({-1}));
    }
    return at::cat(result);
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

struct SyncedNet : torch::nn::Module {
  SyncedNet()
      : norm(register_module("norm", torch::nn::BatchNorm1d(4))),
        inner(register_module("inner", std::make_shared<testing::Mlp>())) {
    to(device());
  }
  at::Tensor loss(const testing::Batch& batch) {
    return inner->loss(norm->forward(batch.x), batch.y);
  }
  torch::nn::BatchNorm1d norm;
  std::shared_ptr<testing::Mlp> inner;
};

TEST(SyncBatchNorm, TrainsUnderATrainerAtEveryLevel) {
  for (const Precision& precision : {Precision::O0(), testing::half_precision()}) {
    const auto model = std::make_shared<SyncedNet>();
    Trainer trainer(runtime(), model, AdamW(1e-2),
                    TrainerOptions().precision(precision).buffers(BufferPolicy::none));
    ASSERT_EQ(convert_sync_batchnorm(Model(*model), runtime().communicator()), 1);
    for (int step = 0; step < 5; ++step) {
      const auto batch = testing::mlp_batch(step, runtime().rank());
      EXPECT_FALSE(trainer.step([&] { return Loss(model->loss(batch)); }).skipped());
    }
    EXPECT_TRUE(trainer.replicas_agree());
    EXPECT_TRUE(equal_on_all_ranks(model->norm->running_mean))
        << "nothing but the layer itself keeps them alike";
  }
}

TEST(SyncBatchNorm, MisuseIsNamedOnEveryRank) {
  torch::nn::Sequential model;
  model->push_back(torch::nn::BatchNorm1d(channels));
  if (runtime().rank() == 1) {
    model->push_back(torch::nn::BatchNorm1d(channels));
  }
  EXPECT_THAT(
      testing::error_of([&] { convert_sync_batchnorm(Model(*model), runtime().communicator()); }),
      ::testing::HasSubstr("ranks have from 1 to 2 BatchNorm layers"));
  torch::nn::BatchNorm1d norm(channels);
  norm->to(device());
  convert_sync_batchnorm(Model(*norm), runtime().communicator());
  const auto none = testing::ones({0, channels});
  if (device().is_cpu()) {
    EXPECT_THAT(testing::error_of([&] { norm->forward(none); }),
                ::testing::HasSubstr("0 elements a channel over all ranks"));
  } else {
    norm->forward(none);
    EXPECT_TRUE(norm->running_var.isnan().all().item<bool>());
  }
}

TEST(SyncBatchNorm, ATrainerRefusesWhatWouldHangOrDependOnAClock) {
  torch::nn::Sequential model(torch::nn::Linear(3, 3), torch::nn::BatchNorm1d(3));
  convert_sync_batchnorm(*model, runtime().communicator());
  const auto refusal = [&](const TrainerOptions& options) {
    return testing::error_of([&] { Trainer(runtime(), model, SGD(0.1), options); });
  };
  EXPECT_THAT(refusal(TrainerOptions().uneven_data(true)),
              ::testing::HasSubstr("convert_sync_batchnorm(), whose forward needs every rank"));
  EXPECT_THAT(refusal(TrainerOptions().activation_budget("1 MiB")),
              ::testing::HasSubstr("use the budget \"automatic\""));
  EXPECT_NO_THROW(
      Trainer(runtime(), model, SGD(0.1), TrainerOptions().activation_budget("automatic")));
  const PlannedChain chain({{"same", [](at::Tensor x) { return x; }}});
  EXPECT_THAT(refusal(TrainerOptions().memory("1 GiB").activation_chain(chain)),
              ::testing::HasSubstr("leave activation_chain out"));
  EXPECT_NO_THROW(Trainer(runtime(), model, SGD(0.1), TrainerOptions().memory("1 GiB")));
}

}  // namespace
}  // namespace lockstep
