// Synchronised batch norm of models in fp64, on one rank; tests/runtime has it on several.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/amp/sync_batch_norm.h>
#include <torch/autograd.h>
#include <torch/nn/modules/batchnorm.h>

#include "error_of.h"

namespace lockstep {
namespace {

/// Far from 0, where sums of squares lose digits.
at::Tensor shifted_rows() {
  at::manual_seed(3);
  return (at::randn({16, 3, 4}, at::kDouble) * 2.0 + 1e6).requires_grad_(true);
}

void expect_same_in_fp64(torch::nn::BatchNorm1d plain, torch::nn::BatchNorm1d synced) {
  plain->to(at::kDouble);
  synced->to(at::kDouble);
  ASSERT_EQ(convert_sync_batchnorm(Model(*synced), Communicator::solo()), 1);
  const at::Tensor x = shifted_rows();
  const at::Tensor mine = x.detach().clone().requires_grad_(true);
  const at::Tensor expected = plain->forward(x);
  const at::Tensor found = synced->forward(mine);
  EXPECT_EQ(found.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::allclose(found, expected, 1e-9, 1e-9));
  (expected * at::sin(expected.detach())).sum().backward();
  (found * at::sin(expected.detach())).sum().backward();
  EXPECT_TRUE(at::allclose(mine.grad(), x.grad(), 1e-7, 1e-7));
  for (size_t i = 0; i < plain->parameters().size(); ++i) {
    EXPECT_TRUE(
        at::allclose(synced->parameters()[i].grad(), plain->parameters()[i].grad(), 1e-7, 1e-7));
  }
  EXPECT_TRUE(at::allclose(synced->running_mean, plain->running_mean, 1e-12, 0));
  EXPECT_TRUE(at::allclose(synced->running_var, plain->running_var, 1e-9, 0));
}

TEST(SyncBatchNormFp64, HasTheStatisticsOfBatchNorm) {
  expect_same_in_fp64(torch::nn::BatchNorm1d(3), torch::nn::BatchNorm1d(3));
}

TEST(SyncBatchNormFp64, LayersWithoutWeightsToo) {
  const auto options = torch::nn::BatchNormOptions(3).affine(false);
  expect_same_in_fp64(torch::nn::BatchNorm1d(options), torch::nn::BatchNorm1d(options));
}

TEST(SyncBatchNorm, RefusesAGradientThatIsDifferentiatedAgain) {
  torch::nn::BatchNorm1d norm(3);
  convert_sync_batchnorm(Model(*norm), Communicator::solo());
  const at::Tensor x = at::randn({4, 3}).requires_grad_(true);
  const at::Tensor y = norm->forward(x).square().sum();
  EXPECT_THAT(testing::error_of([&] {
                torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
              }),
              ::testing::HasSubstr("use plain BatchNorm or another norm there"));
  EXPECT_TRUE(torch::autograd::grad({y}, {x})[0].defined());
}

}  // namespace
}  // namespace lockstep
