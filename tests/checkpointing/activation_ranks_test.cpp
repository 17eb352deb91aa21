// Checkpointed regions under data parallelism and the Trainer: the same bits as without.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <vector>

#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

struct Block : torch::nn::Module {
  Block()
      : up(register_module("up", torch::nn::Linear(8, 16))),
        norm(register_module("norm", torch::nn::BatchNorm1d(16))),
        dropout(register_module("dropout", torch::nn::Dropout(0.2))),
        down(register_module("down", torch::nn::Linear(16, 8))),
        spare(register_module("spare", torch::nn::Linear(8, 8))) {
    to(testing::device());
  }
  at::Tensor forward(const at::Tensor& x) { return x + down(dropout(at::tanh(norm(up(x))))); }
  torch::nn::Linear up;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout dropout;
  torch::nn::Linear down;
  torch::nn::Linear spare;  // never used
};

using Forward = std::function<at::Tensor(const std::shared_ptr<Block>&, const at::Tensor&)>;

at::Tensor plain(const std::shared_ptr<Block>& block, const at::Tensor& x) {
  return block->forward(x);
}

at::Tensor checkpointed(const std::shared_ptr<Block>& block, const at::Tensor& x) {
  return checkpoint(block, x);
}

std::shared_ptr<Block> new_block() {
  torch::manual_seed(11);
  return std::make_shared<Block>();
}

at::Tensor batch_of_this_rank() {
  torch::manual_seed(100 + static_cast<uint64_t>(runtime().rank()));
  return testing::randn({6, 8});
}

/// Gradients and buffers after two accumulated backwards and one reduction.
std::vector<at::Tensor> averaged(const Forward& forward, UnusedParameters unused, int64_t bytes) {
  const auto block = new_block();
  DataParallel parallel(runtime().communicator(), block,
                        DataParallelOptions().unused(unused).buckets(
                            BucketOptions().first_bucket_bytes(bytes).bucket_bytes(bytes)));
  const at::Tensor x = batch_of_this_rank();
  {
    const auto local = parallel.no_sync();
    forward(block, x).square().mean().backward();
  }
  forward(block, x * 2).square().mean().backward();
  parallel.finish();
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : block->parameters()) {
    result.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
  }
  for (const at::Tensor& buffer : block->buffers()) {
    result.push_back(buffer.clone());
  }
  return result;
}

void expect_plain_average(const Forward& without, const Forward& with, UnusedParameters unused) {
  for (const int64_t bytes : {int64_t{1}, int64_t{256}, int64_t{1} << 20}) {
    const auto expected = averaged(without, unused, bytes);
    const auto ours = averaged(with, unused, bytes);
    ASSERT_EQ(expected.size(), ours.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(expected[i].defined(), ours[i].defined()) << i;
      EXPECT_TRUE(!expected[i].defined() || at::equal(expected[i], ours[i])) << i;
    }
  }
}

TEST(CheckpointedGradients, ReducedGradientsAreThePlainOnes) {
  expect_plain_average(plain, checkpointed, UnusedParameters::zeros);
}

TEST(CheckpointedGradients, SharedWeightsAreReducedOnce) {
  expect_plain_average(
      [](const auto& block, const at::Tensor& x) { return plain(block, plain(block, x)); },
      [](const auto& block, const at::Tensor& x) {
        return checkpointed(block, checkpointed(block, x));
      },
      UnusedParameters::zeros);
}

TEST(CheckpointedGradients, UnusedParametersAreDetected) {
  expect_plain_average(plain, checkpointed, UnusedParameters::detect);
}

// As in synchronised batch norm: a collective before, and one behind, what backward needs.
TEST(CheckpointedCollectives, AreIssuedAgainOnEveryRankWithoutEarlyStop) {
  Communicator communicator(runtime().communicator());
  int issued = 0;
  const auto average = [&](const at::Tensor& x) {
    at::Tensor mean = x.detach().mean(0);
    communicator.all_reduce(mean, ReduceOp::avg()).wait();
    ++issued;
    return mean;
  };
  const auto f = [&](const at::Tensor& x) {
    const at::Tensor y = (x - average(x)).tanh();
    return y - average(y);
  };
  const at::Tensor x = batch_of_this_rank().requires_grad_();
  f(x).square().sum().backward();
  const at::Tensor expected = x.grad().clone();
  EXPECT_EQ(issued, 2);
  for (const bool early_stop : {false, true}) {
    x.mutable_grad().reset();
    issued = 0;
    checkpoint(CheckpointOptions().early_stop(early_stop), f, x).square().sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), expected));
    EXPECT_EQ(issued, early_stop ? 3 : 4);  // cut short alike on all ranks
  }
}

std::vector<at::Tensor> trained(const Precision& precision, const Forward& forward) {
  const auto block = new_block();
  Trainer trainer(
      runtime(), block, AdamW(1e-2),
      TrainerOptions().precision(precision).accumulate(2).unused(UnusedParameters::zeros));
  const at::Tensor x = batch_of_this_rank();
  for (int step = 0; step < 6; ++step) {
    trainer.step([&]() -> Loss { return forward(block, x).to(at::kFloat).square().mean(); });
  }
  std::vector<at::Tensor> result;
  for (const auto& master : trainer.masters()) {
    result.push_back(master.second.detach().clone());
  }
  for (const at::Tensor& buffer : block->buffers()) {
    result.push_back(buffer.clone());
  }
  return result;
}

TEST(CheckpointedTraining, EveryPrecisionEndsAtThePlainWeights) {
  for (const Precision& precision : {Precision::O0(), Precision::O1(), Precision::O2()}) {
    const auto expected = trained(precision, plain);
    const auto ours = trained(precision, checkpointed);
    ASSERT_EQ(expected.size(), ours.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(expected[i], ours[i])) << precision.describe() << ", tensor " << i;
    }
  }
}

}  // namespace
}  // namespace lockstep
