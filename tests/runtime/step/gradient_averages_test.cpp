// Behaviours of gradient averaging: what grad() holds after finish().
#include <lockstep/runtime/data_parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <thread>

#include "runtime/across_ranks.h"
#include "runtime/models.h"
#include "test_names.h"

namespace lockstep {
namespace {

DataParallelOptions bucket_bytes(int64_t bytes) {
  return DataParallelOptions().buckets(
      BucketOptions().first_bucket_bytes(bytes).bucket_bytes(bytes));
}

struct Batch {
  at::Tensor x;
  at::Tensor y;
  Batch of_rank(int rank) const {
    const int64_t rows = x.size(0) / runtime().size();
    return {x.narrow(0, rank * rows, rows), y.narrow(0, rank * rows, rows)};
  }
};

/// The batch of all ranks together, five rows each.
Batch joined_batch(uint64_t seed) {
  return {drawn({5 * runtime().size(), 4}, seed), drawn({5 * runtime().size(), 2}, seed + 1000)};
}

TEST(GradientAverages, ShardedBatchEqualsFullBatch) {
  const auto model = std::make_shared<Mlp>();
  DataParallel parallel(runtime().communicator(), model);
  Mlp reference;
  testing::copy_state(*model, reference);
  for (uint64_t step = 0; step < 2; ++step) {
    const Batch all = joined_batch(step);
    const Batch mine = all.of_rank(runtime().rank());
    testing::clear_gradients(*model);
    testing::clear_gradients(reference);
    model->loss(mine.x, mine.y).backward();
    parallel.finish();
    reference.loss(all.x, all.y).backward();
    testing::descend(*model, 0.5);
    testing::descend(reference, 0.5);
  }
  for (const auto& entry : reference.named_parameters()) {
    const at::Tensor ours = model->named_parameters()[entry.key()];
    EXPECT_TRUE(at::allclose(ours, entry.value(), 1.3e-6, 1e-7)) << entry.key();
    EXPECT_TRUE(equal_on_all_ranks(ours)) << entry.key();
  }
}

/// The gradient of every rank is `of_rank(rank)`; returns what finish() makes of it.
at::Tensor averaged(at::Tensor weight, const DataParallelOptions& options,
                    const std::function<double(int)>& of_rank) {
  const auto model = std::make_shared<OneWeight>(std::move(weight));
  DataParallel parallel(runtime().communicator(), model, options);
  (model->weight * of_rank(runtime().rank())).sum().backward();
  parallel.finish();
  return model->weight.grad();
}

TEST(GradientAverages, Fp16AveragesDoNotOverflow) {
  for (const int64_t bytes : {int64_t{1}, int64_t{1} << 20}) {
    const at::Tensor gradient =
        averaged(testing::ones({5}, at::kHalf), bucket_bytes(bytes), [](int) { return 32768.0; });
    EXPECT_TRUE(at::equal(gradient, testing::full({5}, 32768.0, at::kHalf))) << gradient;
  }
}

TEST(GradientAverages, GradientsKeepTheirLayoutAndMatch) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    for (const auto dtype : {at::kFloat, at::kHalf}) {
      for (const int64_t bytes : {int64_t{1}, int64_t{25} << 20}) {
        const auto model =
            std::make_shared<OneWeight>(drawn({3, 4, 2, 2}, 5).to(dtype).contiguous(format));
        model->register_parameter("other", drawn({7}, 6));
        DataParallel parallel(runtime().communicator(), model, bucket_bytes(bytes));
        for (uint64_t iteration = 0; iteration < 3; ++iteration) {
          const auto factor = [&](int rank) {
            return drawn({3, 4, 2, 2}, 10 * iteration + static_cast<uint64_t>(rank));
          };
          testing::clear_gradients(*model);
          const at::Tensor other = model->named_parameters()["other"];
          (model->weight * factor(runtime().rank()).to(dtype)).sum().add(other.sum()).backward();
          parallel.finish();
          at::Tensor expected = testing::zeros({3, 4, 2, 2});
          for (int rank = 0; rank < runtime().size(); ++rank) {
            expected += factor(rank).to(dtype).to(at::kFloat) / runtime().size();
          }
          const double tolerance = dtype == at::kHalf ? 3e-3 : 1e-5;
          EXPECT_EQ(model->weight.grad().strides(), model->weight.strides());
          EXPECT_TRUE(
              at::allclose(model->weight.grad().to(at::kFloat), expected, tolerance, tolerance))
              << dtype << " " << format << " " << bytes;
          EXPECT_TRUE(at::equal(other.grad(), testing::ones({7})));
        }
      }
    }
  }
}

TEST(GradientAverages, SharedWeightGetsTheMeanOnce) {
  for (const int64_t bytes : {int64_t{1}, int64_t{1} << 20}) {
    for (const bool set_to_none : {true, false}) {
      const auto model = std::make_shared<OneWeight>(testing::ones({3}));
      const auto other = model->register_module("other", std::make_shared<torch::nn::Module>());
      other->register_parameter("tied", model->weight);
      DataParallel parallel(runtime().communicator(), model, bucket_bytes(bytes));
      for (int iteration = 0; iteration < 3; ++iteration) {
        model->zero_grad(set_to_none);
        const at::Tensor tied = other->parameters()[0];
        (model->weight + tied).mul(runtime().rank() + 1).sum().backward();
        parallel.finish();
        EXPECT_TRUE(at::equal(tied.grad(), testing::full({3}, runtime().size() + 1.0)));
      }
    }
  }
}

TEST(GradientAverages, TwoBackwardsOfDisjointOutputsAreOneWindow) {
  const auto model = std::make_shared<testing::Branches>();
  DataParallel parallel(runtime().communicator(), model);
  const at::Tensor x = testing::full({1, 3}, static_cast<double>(runtime().rank()));
  const at::Tensor left = model->left->forward(x).sum();
  const at::Tensor right = model->right->forward(2 * x).sum();
  left.backward();
  right.backward();
  parallel.finish();
  const double mean = testing::sum_of_ranks() / runtime().size();
  EXPECT_TRUE(at::allclose(model->left->weight.grad(), testing::full({1, 3}, mean)));
  EXPECT_TRUE(at::allclose(model->right->weight.grad(), testing::full({1, 3}, 2 * mean)));
}

TEST(GradientAverages, ForwardWithoutGradientOnOneRankCommunicatesNothing) {
  const auto model = std::make_shared<Mlp>();
  DataParallel parallel(runtime().communicator(), model);
  for (int round = 0; round < 3; ++round) {
    if (runtime().is_main()) {
      model->eval();
      const at::NoGradGuard no_grad;
      EXPECT_FALSE(model->forward(testing::ones({2, 4})).requires_grad());
      EXPECT_FALSE(round == 0 && model->first->weight.grad().defined());
      model->train();
    }
    testing::clear_gradients(*model);
    model->forward(drawn({2, 4}, static_cast<uint64_t>(runtime().rank()))).sum().backward();
    parallel.finish();
    EXPECT_TRUE(equal_on_all_ranks(model->first->weight.grad()));
  }
}

/// Runs `layer` without a graph, and again with one when its gradient is asked for: activation
/// checkpointing by a backward within the backward.
class Recompute : public torch::autograd::Function<Recompute> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            torch::nn::LinearImpl* layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
    return at::tanh(layer->forward(x));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::AutoGradMode with_gradient(true);
    auto* layer = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    at::tanh(layer->forward(x)).backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

TEST(GradientAverages, CheckpointedModelEqualsThePlainOne) {
  const auto model = std::make_shared<Mlp>();
  DataParallel parallel(runtime().communicator(), model, bucket_bytes(1));
  Mlp plain;
  testing::copy_state(*model, plain);
  for (uint64_t step = 0; step < 5; ++step) {
    const Batch all = joined_batch(step);
    const Batch mine = all.of_rank(runtime().rank());
    testing::clear_gradients(*model);
    testing::clear_gradients(plain);
    const at::Tensor x = mine.x.clone().requires_grad_();
    const at::Tensor hidden = Recompute::apply(x, model->first.get());
    (model->second->forward(hidden) - mine.y).square().mean().backward();
    parallel.finish();
    plain.loss(all.x, all.y).backward();
    for (const auto& entry : plain.named_parameters()) {
      EXPECT_TRUE(at::allclose(model->named_parameters()[entry.key()].grad(), entry.value().grad(),
                               1e-5, 1e-7))
          << entry.key();
    }
    testing::descend(*model, 0.1);
    testing::descend(plain, 0.1);
  }
}

TEST(GradientAverages, InterleavedWrappersAverageExactly) {
  Communicator world = runtime().communicator();
  const auto first = std::make_shared<OneWeight>(testing::zeros({300}));
  const auto second = std::make_shared<OneWeight>(testing::zeros({70}));
  DataParallel one(world.split(0, world.rank()), first);
  DataParallel two(world.split(0, world.rank()), second);
  for (int i = 0; i < 300; ++i) {
    testing::clear_gradients(*first);
    testing::clear_gradients(*second);
    ((first->weight + 0).sum() * (runtime().rank() + i)).backward();
    ((second->weight + 0).sum() * (runtime().rank() - i)).backward();
    (i % 2 == 0 ? one : two).finish();
    (i % 2 == 0 ? two : one).finish();
    const double mean = testing::sum_of_ranks() / runtime().size();
    ASSERT_NEAR(first->weight.grad()[299].item<double>(), mean + i, 1e-4);
    ASSERT_TRUE(at::equal(first->weight.grad(), first->weight.grad()[0].expand({300})));
    ASSERT_NEAR(second->weight.grad()[69].item<double>(), mean - i, 1e-4);
  }
}

TEST(GradientAverages, LargeParametersInTinyBucketsSumExactly) {
  constexpr int64_t n = 2'000'000;
  const auto model = std::make_shared<OneWeight>(testing::ones({n}));
  model->register_parameter("other", testing::full({n}, 2.0));
  DataParallel parallel(runtime().communicator(), model, bucket_bytes(1).reduce(ReduceOp::sum()));
  ASSERT_EQ(parallel.buckets(), 2);
  const at::Tensor other = model->named_parameters()["other"];
  for (int i = 0; i < 10; ++i) {
    testing::clear_gradients(*model);
    const int factor = runtime().rank() + i;
    ((model->weight * factor).sum() + (other * (2 * factor)).sum()).backward();
    parallel.finish();
    const double sum = testing::sum_of_ranks() + runtime().size() * i;
    ASSERT_TRUE(at::equal(model->weight.grad(), testing::full({n}, sum)));
    ASSERT_TRUE(at::equal(other.grad(), testing::full({n}, 2 * sum)));
  }
}

TEST(DataParallel, GradientsAreBitEqualAndIndependentOfDelays) {
  const auto model = std::make_shared<Mlp>(64);
  DataParallel parallel(runtime().communicator(), model, bucket_bytes(1));
  const at::Tensor x = drawn({5, 4}, static_cast<uint64_t>(runtime().rank()));
  std::vector<at::Tensor> before;
  for (int late_rank = -1; late_rank < runtime().size(); ++late_rank) {
    testing::clear_gradients(*model);
    at::Tensor hidden = at::tanh(model->first->forward(x));
    hidden.register_hook([&](const at::Tensor& gradient) {
      if (runtime().rank() == late_rank) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      return gradient;
    });
    model->second->forward(hidden).square().sum().backward();
    parallel.finish();
    const auto parameters = model->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(equal_on_all_ranks(parameters[i].grad()));
      if (late_rank >= 0) {
        EXPECT_TRUE(at::equal(parameters[i].grad(), before[i]));
      } else {
        before.push_back(parameters[i].grad().clone());
      }
    }
  }
}

TEST(DataParallel, WireDtypeRoundsAndGradientsKeepTheirOwn) {
  const auto thirds = [](int rank) { return (rank + 1) / 3.0; };
  const double mean = (runtime().size() + 1) / 6.0;
  for (const auto wire : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor gradient =
        averaged(testing::ones({70}), DataParallelOptions().wire(wire), thirds);
    EXPECT_EQ(gradient.scalar_type(), at::kFloat);
    EXPECT_TRUE(equal_on_all_ranks(gradient));
    const double unit = wire == at::kFloat ? 1e-7 : wire == at::kHalf ? 1e-3 : 8e-3;
    EXPECT_NEAR(gradient[69].item<double>(), mean, 2 * unit * mean);
    if (wire != at::kFloat) {
      EXPECT_TRUE(at::equal(gradient, gradient.to(wire).to(at::kFloat))) << wire;
    }
  }
}

TEST(DataParallel, Fp64StaysFp64WhateverTheWire) {
  const auto tiny = [](int rank) { return 1.0 + (rank + 1) * 1e-12; };
  const at::Tensor gradient =
      averaged(testing::ones({3}, at::kDouble), DataParallelOptions().wire(at::kHalf), tiny);
  EXPECT_EQ(gradient.scalar_type(), at::kDouble);
  EXPECT_NEAR(gradient[0].item<double>() - 1.0, (runtime().size() + 1) * 0.5e-12, 1e-15);
}

TEST(DataParallel, SumsWhenAskedAndPredivideKeepsTheMean) {
  const auto of_rank = [](int rank) { return rank + 1.0; };
  const double ranks = runtime().size();
  const auto options = [](ReduceOp op) { return DataParallelOptions().reduce(op); };
  EXPECT_EQ(averaged(testing::ones({1}), options(ReduceOp::sum()), of_rank).item<double>(),
            ranks * (ranks + 1) / 2);
  for (const double factor : {2.0, 8.0}) {
    EXPECT_NEAR(averaged(testing::ones({1}), options(ReduceOp::avg().predivide(factor)), of_rank)
                    .item<double>(),
                (ranks + 1) / 2, 1e-6);
  }
}

TEST(DataParallel, GradientStaysInItsBucketWhereDtypesAgree) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  DataParallel parallel(runtime().communicator(), model);
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.0);
  const void* address = nullptr;
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad(/*set_to_none=*/i == 1);
    model->weight.sum().backward();
    parallel.finish();
    EXPECT_TRUE(address == nullptr || address == model->weight.grad().const_data_ptr());
    address = model->weight.grad().const_data_ptr();
    EXPECT_TRUE(at::equal(model->weight.grad(), testing::ones({3})));
  }
}

TEST(DataParallel, FrozenAndZeroElementParametersAreLeftInPeace) {
  const auto model = std::make_shared<OneWeight>(testing::ones({3}));
  model->register_parameter("frozen", testing::full({2}, 5.0), /*requires_grad=*/false);
  model->register_parameter("empty", testing::ones({0, 4}));
  DataParallel parallel(runtime().communicator(), model, bucket_bytes(1));
  const at::Tensor empty = model->named_parameters()["empty"];
  const at::Tensor frozen = model->named_parameters()["frozen"];
  (model->weight.sum() * runtime().rank() + empty.sum() + frozen.sum()).backward();
  parallel.finish();
  EXPECT_NEAR(model->weight.grad()[0].item<double>(), testing::sum_of_ranks() / runtime().size(),
              1e-6);
  EXPECT_FALSE(frozen.grad().defined());
  EXPECT_EQ(empty.grad().sizes(), empty.sizes());
}

}  // namespace
}  // namespace lockstep
