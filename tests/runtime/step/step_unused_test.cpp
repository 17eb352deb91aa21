// Parameters that get no gradient, or a sparse one, from some micro-batch or rank.
#include <lockstep/runtime/data_parallel.h>

#include "error_of.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

TrainerOptions unused(UnusedParameters policy) {
  return TrainerOptions().unused(policy);
}

Loss branch_loss(const torch::nn::Linear& branch) {
  const auto& weight = branch->weight;
  return (weight.sum() + branch->bias.sum()) * (runtime().rank() + 1);
}

TEST(StepRules, ParametersThatNobodyUsedStayWhereTheyAreWhenDetected) {
  const auto model = std::make_shared<Branches>();
  Trainer trainer(runtime(), model, AdamW(0.1).weight_decay(0.5), unused(UnusedParameters::detect));
  const at::Tensor start = model->right->weight.detach().clone();
  trainer.step([&] { return branch_loss(model->left); });
  EXPECT_TRUE(at::equal(model->right->weight, start));
  trainer.step([&] { return branch_loss(runtime().rank() == 1 ? model->right : model->left); });
  EXPECT_FALSE(at::equal(model->right->weight, start));
  EXPECT_TRUE(trainer.replicas_agree());
}

TEST(StepRules, ParametersThatNobodyUsedGetZeroGradientsWhenAsked) {
  const auto model = std::make_shared<Branches>();
  Trainer trainer(runtime(), model, SGD(0.1).weight_decay(0.5), unused(UnusedParameters::zeros));
  trainer.step([&] { return branch_loss(model->right); });
  const at::Tensor start = model->right->weight.detach().clone();
  trainer.step([&] { return branch_loss(model->left); });
  EXPECT_TRUE(at::allclose(model->right->weight, start * (1 - 0.1 * 0.5)));  // decay alone
}

TEST(StepRules, AParameterUsedInOneMicroBatchOfOneRankCounts) {
  for (const int used_in : {0, 1, 2}) {
    const auto model = std::make_shared<Branches>();
    Trainer trainer(runtime(), model, SGD(1.0), unused(UnusedParameters::zeros).accumulate(3));
    const at::Tensor start = model->right->weight.detach().clone();
    for (int k = 0; k < 3; ++k) {
      const bool here = k == used_in && runtime().rank() == 1;
      trainer.step([&] { return branch_loss(here ? model->right : model->left); });
    }
    const double gradient = 2.0 / (3 * runtime().size());
    EXPECT_TRUE(
        at::allclose(start - model->right->weight, testing::full({1, 3}, gradient), 1e-4, 1e-6));
    EXPECT_TRUE(trainer.replicas_agree());
  }
}

Loss sparse_loss(const OneWeight& model) {
  const at::Tensor rows = testing::full({2}, runtime().rank() % 3, at::kLong);
  return at::embedding(model.weight, rows, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false,
                       /*sparse=*/true)
      .sum();
}

TEST(StepRules, SparseGradientsAreRefusedByNameOrMadeDense) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3, 2}));
  {
    Trainer trainer(runtime(), model, SGD(1.0));
    EXPECT_THAT(error_of([&] { trainer.step([&] { return sparse_loss(*model); }); }),
                HasSubstr("parameter weight has a sparse gradient"));
    EXPECT_TRUE(at::equal(model->weight, testing::ones({3, 2})));
  }
  Trainer trainer(runtime(), model, SGD(1.0), TrainerOptions().densify_sparse(true).accumulate(2));
  at::Tensor expected = testing::ones({3, 2});
  for (int k = 0; k < 2; ++k) {
    trainer.step([&] { return sparse_loss(*model); });
  }
  for (int rank = 0; rank < runtime().size(); ++rank) {
    expected[rank % 3] -= 2.0 / runtime().size();
  }
  EXPECT_TRUE(at::allclose(model->weight, expected));
}

TEST(WireAverages, Fp16AveragesStayInRangeWhereSumsOverflow) {
  const auto model = std::make_shared<OneWeight>(testing::ones({5}, at::kHalf));
  for (const ReduceOp op : {ReduceOp::avg(), ReduceOp::avg().predivide(2), ReduceOp::sum()}) {
    DataParallel parallel(runtime().communicator(), model, DataParallelOptions().reduce(op));
    testing::clear_gradients(*model);
    (model->weight * 40000).sum().backward();
    parallel.finish();
    const double expected =
        op == ReduceOp::sum() ? std::numeric_limits<double>::infinity() : 40000.0;
    EXPECT_TRUE(at::equal(model->weight.grad(), testing::full({5}, expected, at::kHalf)))
        << model->weight.grad();
  }
}

}  // namespace
}  // namespace lockstep
