// Four kinds of model against their plain runs, and the buffers of norms.
#include <gtest/gtest.h>

#include <thread>

#include "activation_models.h"
#include "activation_trial.h"

namespace lockstep::testing {
namespace {

using torch::nn::Linear;
using torch::nn::Sequential;

TEST(Recompute, NormsGiveThePlainBuffersAfterTwoSteps) {
  const at::Tensor x = torch::randn({4, 3, 8, 8});
  for (const char* kind : {"batch norm", "cumulative batch norm", "group norm", "layer norm"}) {
    for (bool autocast : {false, true}) {
      SCOPED_TRACE(std::string(kind) + (autocast ? " under autocast" : ""));
      Sequential plain = normalised(kind);
      Sequential other(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(plain->clone()));
      for (int step = 0; step < 2; ++step) {
        const auto forward = [&](const std::function<at::Tensor()>& f) {
          std::optional<HostAutocast> guard;
          if (autocast) {
            guard.emplace();
          }
          return f();
        };
        expect_equal(
            run_trial(
                plain,
                [&](const at::Tensor& in) { return forward([&] { return plain->forward(in); }); },
                x),
            run_trial(
                other,
                [&](const at::Tensor& in) {
                  return forward([&] { return checkpoint(other, in); });
                },
                x));
      }
      if (std::string(kind) == "batch norm") {
        EXPECT_EQ(other->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 2);
      }
    }
  }
}

TEST(Recompute, BuffersOfFreeFunctionsAndNestedRegionsMoveOnce) {
  const at::Tensor x = torch::randn({4, 3, 8, 8});
  const auto plain = [](Sequential& m, const at::Tensor& in) { return m->forward(in); };
  expect_checkpoint_equals_plain<Sequential>(
      normalised("batch norm"), x, plain, [](Sequential& m, const at::Tensor& in) {
        return checkpoint(
            CheckpointOptions().buffers(m->buffers()),
            [m](const at::Tensor& h) mutable { return m->forward(h); }, in);
      });
  expect_checkpoint_equals_plain<Sequential>(
      normalised("batch norm"), x, plain, [](Sequential& m, const at::Tensor& in) {
        return checkpoint(
            CheckpointOptions().early_stop(false),
            [m](const at::Tensor& h) mutable { return checkpoint(m, h); }, in);
      });
}

template <class Module>
void expect_model_equals_plain(const Module& module, const at::Tensor& x) {
  const auto plain = [](Module& m, const at::Tensor& in) { return m->forward(in); };
  const auto whole = [](Module& m, const at::Tensor& in) { return checkpoint(m, in); };
  const auto on_other_thread = [](Module& m, const at::Tensor& in) {
    at::Tensor y;
    std::thread([&] { y = checkpoint(m, in); }).join();
    return y;
  };
  for (bool gradient : {false, true}) {
    const at::Tensor input = x.clone().set_requires_grad(gradient);
    expect_checkpoint_equals_plain<Module>(module, input, plain, whole);
    expect_checkpoint_equals_plain<Module>(module, input, plain, on_other_thread);
  }
}

TEST(CheckpointedModels, MlpEqualsPlain) {
  expect_model_equals_plain(
      Sequential(Linear(16, 32), torch::nn::GELU(), torch::nn::Dropout(0.3), Linear(32, 4)),
      torch::randn({8, 16}));
}

TEST(CheckpointedModels, ConvolutionWithBatchNormEqualsPlain) {
  expect_model_equals_plain(normalised("batch norm"), torch::randn({2, 3, 8, 8}));
}

TEST(CheckpointedModels, TransformerWithDropoutEqualsPlain) {
  expect_model_equals_plain(Attention(), torch::randn({5, 3, 16}));
}

TEST(CheckpointedModels, LstmEqualsPlain) {
  expect_model_equals_plain(Recurrent(), torch::randn({5, 3, 16}));
}

TEST(CheckpointedModels, SharedWeightsAccumulateOncePerBackward) {
  Linear linear(4, 4);
  int fired = 0;
  linear->weight.register_hook([&](const at::Tensor&) { ++fired; });
  const at::Tensor x = torch::randn({2, 4});
  checkpoint(linear, checkpoint(linear, x).sin()).sum().backward();
  const at::Tensor gradient = linear->weight.grad().clone();
  EXPECT_EQ(fired, 1);
  linear->zero_grad();
  linear(linear(x).sin()).sum().backward();
  EXPECT_TRUE(torch::equal(gradient, linear->weight.grad()));
}

}  // namespace
}  // namespace lockstep::testing
