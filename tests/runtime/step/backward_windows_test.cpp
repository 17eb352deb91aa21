// Behaviours of windows: unused parameters, accumulation, buffers, and what ranks forgot.
#include <ATen/ops/embedding.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/data_parallel.h>

#include "error_of.h"
#include "runtime/across_ranks.h"
#include "runtime/models.h"
#include "test_names.h"

namespace lockstep {
namespace {

DataParallelOptions unused(UnusedParameters policy) {
  return DataParallelOptions().unused(policy);
}

at::Tensor ones(double value = 1.0) {
  return testing::full({1, 3}, value);
}

double mean_of_ranks() {
  return testing::sum_of_ranks() / runtime().size();
}

TEST(BackwardWindows, TiedParameterUnusedInOnePlaceIsNoError) {
  for (const auto policy : {UnusedParameters::zeros, UnusedParameters::detect}) {
    const auto model = std::make_shared<Branches>();
    model->register_parameter("tied", model->left->bias);
    DataParallel parallel(runtime().communicator(), model, unused(policy));
    for (int i = 0; i < 4; ++i) {
      testing::clear_gradients(*model);
      at::Tensor loss = model->left->forward(ones()).sum();
      if (i % 2 == 1) {
        loss = loss + model->right->forward(ones()).sum() + model->left->bias.sum();
      }
      (loss * (runtime().rank() + 1) / 10).backward();
      parallel.finish();
      const double expected = (i % 2 == 1 ? 2 : 1) * (mean_of_ranks() + 1) / 10;
      EXPECT_NEAR(model->left->bias.grad().item<double>(), expected, 1e-6);
    }
  }
}

TEST(BackwardWindows, NoSyncKeepsGradientsLocalUntilTheNextBackward) {
  for (const auto wire : {at::kFloat, at::kBFloat16}) {
    const auto model = std::make_shared<OneWeight>(testing::ones({3}));
    DataParallel parallel(runtime().communicator(), model, DataParallelOptions().wire(wire));
    for (int round = 0; round < 3; ++round) {
      testing::clear_gradients(*model);
      {
        const auto local = parallel.no_sync();
        for (int k = 0; k < 2; ++k) {
          (model->weight * (runtime().rank() + 1)).sum().backward();
        }
        EXPECT_EQ(model->weight.grad()[0].item<double>(), 2.0 * (runtime().rank() + 1));
      }
      (model->weight * (runtime().rank() + 1)).sum().backward();
      parallel.finish();
      EXPECT_NEAR(model->weight.grad()[2].item<double>(), 3 * (mean_of_ranks() + 1), 0.04);
      EXPECT_TRUE(equal_on_all_ranks(model->weight.grad()));
    }
  }
}

TEST(BackwardWindows, DifferentPartsOnEachRankAndMicroBatchGiveEqualGradients) {
  const auto model = std::make_shared<Branches>();
  DataParallel parallel(runtime().communicator(), model, unused(UnusedParameters::zeros));
  const auto part = [&](int micro_batch) {
    auto& branch = (runtime().rank() + micro_batch) % 2 == 0 ? model->left : model->right;
    branch->forward(ones(runtime().rank() + 1.0)).sum().backward();
  };
  {
    const auto local = parallel.no_sync();
    part(0);
  }
  part(1);
  parallel.finish();
  for (const at::Tensor& parameter : model->parameters()) {
    ASSERT_TRUE(parameter.grad().defined());
    EXPECT_TRUE(equal_on_all_ranks(parameter.grad()));
  }
  EXPECT_NEAR(model->left->weight.grad()[0][0].item<double>(), mean_of_ranks() + 1, 1e-6);
  EXPECT_NEAR(model->right->weight.grad()[0][0].item<double>(), mean_of_ranks() + 1, 1e-6);
}

TEST(BackwardWindows, BranchThatFlipsOnAllRanksAlikeIsDetectedOrNamed) {
  const auto model = std::make_shared<Branches>();
  {
    DataParallel parallel(runtime().communicator(), model, unused(UnusedParameters::detect));
    for (int i = 0; i < 4; ++i) {
      testing::clear_gradients(*model);
      auto& used = i % 2 == 0 ? model->left : model->right;
      auto& idle = i % 2 == 0 ? model->right : model->left;
      used->forward(ones(runtime().rank())).sum().backward();
      parallel.finish();
      EXPECT_FALSE(idle->weight.grad().defined());
      EXPECT_NEAR(used->weight.grad()[0][0].item<double>(), mean_of_ranks(), 1e-6);
    }
  }
  testing::clear_gradients(*model);
  DataParallel parallel(runtime().communicator(), model);
  model->left->forward(ones()).sum().backward();
  const std::string message = error_of([&] { parallel.finish(); });
  EXPECT_THAT(message, HasSubstr("no gradient in this update: right.weight, right.bias"));
  EXPECT_THAT(message, HasSubstr(c10::str("ranks 0-", runtime().size() - 1, ": ")));
}

TEST(BackwardWindows, BranchTakenOnOneRankOnlyIsAveragedWithZeros) {
  for (const auto policy : {UnusedParameters::zeros, UnusedParameters::detect}) {
    const auto model = std::make_shared<Branches>();
    DataParallel parallel(runtime().communicator(), model, unused(policy));
    at::Tensor loss = model->left->forward(ones()).sum();
    if (runtime().rank() == 1) {
      loss = loss + model->right->forward(ones(6.0)).sum();
    }
    loss.backward();
    parallel.finish();
    ASSERT_TRUE(model->right->weight.grad().defined());
    EXPECT_NEAR(model->right->weight.grad()[0][0].item<double>(), 6.0 / runtime().size(), 1e-6);
    EXPECT_TRUE(equal_on_all_ranks(model->right->weight.grad()));
  }
}

TEST(BackwardWindows, ForgottenFinishIsReportedOnEveryRank) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  DataParallel parallel(runtime().communicator(), model);
  const auto backward = [&] {
    testing::clear_gradients(*model);
    (model->weight * (runtime().rank() + 1)).sum().backward();
  };
  backward();
  if (runtime().rank() == 1) {
    // Its finish() was forgotten.
    EXPECT_THAT(error_of(backward), HasSubstr("parameter weight got a gradient twice"));
  }
  const std::string message = error_of([&] { parallel.finish(); });
  EXPECT_THAT(message, HasSubstr("rank 1: parameter weight got a gradient twice"));
  EXPECT_THAT(message, HasSubstr("call finish() after each backward"));
  EXPECT_THAT(message, Not(HasSubstr("rank 0: ")));
  backward();
  parallel.finish();
  EXPECT_NEAR(model->weight.grad()[0].item<double>(), mean_of_ranks() + 1, 1e-6);
}

TEST(BackwardWindows, BuffersAreEqualAfterFinish) {
  for (const auto policy : {BufferPolicy::broadcast, BufferPolicy::average, BufferPolicy::none}) {
    const auto model = std::make_shared<OneWeight>(testing::ones({3}));
    const at::Tensor mean = model->register_buffer("mean", testing::zeros({5}));
    const at::Tensor count = model->register_buffer("count", testing::zeros({1}, at::kLong));
    DataParallel parallel(runtime().communicator(), model, DataParallelOptions().buffers(policy));
    for (int i = 0; i < 3; ++i) {
      testing::clear_gradients(*model);
      mean.fill_(10.0 * i + runtime().rank());
      count.fill_(100 * i + runtime().rank() + 7);
      // Two forwards and one backward while buffers move: no in-place error.
      (model->weight * mean[0] + model->weight * mean[1]).sum().backward();
      parallel.finish();
      const bool none = policy == BufferPolicy::none;
      EXPECT_EQ(equal_on_all_ranks(mean), !none);
      EXPECT_EQ(count.item<int64_t>(), 100 * i + 7 + (none ? runtime().rank() : 0));
      if (!none) {
        const double offset = policy == BufferPolicy::average ? mean_of_ranks() : 0.0;
        EXPECT_NEAR(mean[4].item<double>(), 10.0 * i + offset, 1e-5);
      }
    }
  }
}

TEST(DataParallel, NamesUnusedParametersAndTheRankThatMissesThem) {
  const auto model = std::make_shared<Branches>();
  DataParallel parallel(runtime().communicator(), model);
  at::Tensor loss = model->left->forward(ones()).sum();
  if (runtime().rank() != 1) {
    loss = loss + model->right->forward(ones()).sum();
  }
  loss.backward();
  const std::string message = error_of([&] { parallel.finish(); });
  EXPECT_THAT(message, HasSubstr("rank 1: parameters got no gradient"));
  EXPECT_THAT(message, HasSubstr("right.weight, right.bias"));
  EXPECT_THAT(message, Not(HasSubstr("rank 0: ")));
}

TEST(DataParallel, NamesTheRankThatCallsFinishWithoutBackward) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  DataParallel parallel(runtime().communicator(), model);
  if (runtime().rank() != 1) {
    model->weight.sum().backward();
  }
  EXPECT_THAT(error_of([&] { parallel.finish(); }),
              HasSubstr("rank 1: finish() without a backward before it"));
}

TEST(DataParallel, NamesParametersThatWereFrozenOrThawedAfterWrapping) {
  const auto model = std::make_shared<Branches>();
  model->right->bias.requires_grad_(false);
  DataParallel parallel(runtime().communicator(), model, unused(UnusedParameters::zeros));
  const auto step = [&] {
    (model->left->forward(ones()) + model->right->forward(ones())).sum().backward();
    parallel.finish();
  };
  model->right->bias.requires_grad_(true);
  EXPECT_THAT(error_of(step), HasSubstr("parameter right.bias was frozen"));
  model->right->bias.requires_grad_(false);
  model->left->weight.requires_grad_(false);
  EXPECT_THAT(error_of(step), HasSubstr("parameter left.weight was trainable"));
  model->left->weight.requires_grad_(true);
  step();
}

at::Tensor sparse_loss(const at::Tensor& table) {
  const at::Tensor rows = testing::full({2}, runtime().rank() % 3, at::kLong);
  return at::embedding(table, rows, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false,
                       /*sparse=*/true)
      .sum();
}

TEST(DataParallel, RefusesSparseGradientsByNameOnEveryRank) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3, 2}));
  DataParallel parallel(runtime().communicator(), model);
  sparse_loss(model->weight).backward();
  EXPECT_THAT(error_of([&] { parallel.finish(); }),
              HasSubstr("parameter weight has a sparse gradient; set densify_sparse(true)"));
}

TEST(DataParallel, DensifiesSparseGradientsWhenAsked) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3, 2}));
  DataParallel parallel(runtime().communicator(), model,
                        DataParallelOptions().densify_sparse(true));
  sparse_loss(model->weight).backward();
  parallel.finish();
  at::Tensor expected = testing::zeros({3, 2});
  for (int rank = 0; rank < runtime().size(); ++rank) {
    expected[rank % 3] += 2.0 / runtime().size();
  }
  EXPECT_TRUE(at::allclose(model->weight.grad(), expected));
}

TEST(DataParallel, AbandonDropsABackwardThatThrew) {
  const auto model = std::make_shared<Branches>();
  DataParallel parallel(runtime().communicator(), model);
  at::Tensor x = ones().requires_grad_();
  x.register_hook([](const at::Tensor&) -> at::Tensor { throw Error("late"); });
  EXPECT_THAT(error_of([&] { model->left->forward(x).sum().backward(); }), HasSubstr("late"));
  parallel.abandon();
  testing::clear_gradients(*model);
  const at::Tensor y = ones(runtime().rank());
  (model->left->forward(y) + model->right->forward(y)).sum().backward();
  parallel.finish();
  EXPECT_NEAR(model->right->weight.grad()[0][0].item<double>(), mean_of_ranks(), 1e-6);
}

}  // namespace
}  // namespace lockstep
