// The reentrant form of checkpoint(): this program brings engine_hook_unavailable.cpp, as a build
// for an unknown LibTorch would.
#include <gmock/gmock.h>
#include <lockstep/checkpointing/activation/engine_hook.h>
#include <lockstep/checkpointing/activation/keep.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/checkpointing/activation/offload.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>
#include <lockstep/collectives/error.h>
#include <torch/csrc/autograd/function_hook.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "activation_models.h"
#include "activation_trial.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::Sequential;

template <class Module>
void expect_model_equals_plain(const Module& module, const at::Tensor& x) {
  ASSERT_FALSE(activation::engine_hook_available());
  for (bool gradient : {false, true}) {
    expect_checkpoint_equals_plain<Module>(
        module, x.clone().set_requires_grad(gradient),
        [](Module& m, const at::Tensor& in) { return m->forward(in); },
        [](Module& m, const at::Tensor& in) { return checkpoint(m, in); });
  }
}

TEST(ReentrantCheckpoint, MlpEqualsPlain) {
  expect_model_equals_plain(
      Sequential(Linear(16, 32), torch::nn::GELU(), torch::nn::Dropout(0.3), Linear(32, 4)),
      torch::randn({8, 16}));
}

TEST(ReentrantCheckpoint, ConvolutionWithBatchNormEqualsPlain) {
  expect_model_equals_plain(normalised("batch norm"), torch::randn({2, 3, 8, 8}));
}

TEST(ReentrantCheckpoint, TransformerWithDropoutEqualsPlain) {
  expect_model_equals_plain(Attention(), torch::randn({5, 3, 16}));
}

TEST(ReentrantCheckpoint, LstmEqualsPlain) {
  expect_model_equals_plain(Recurrent(), torch::randn({5, 3, 16}));
}

TEST(ReentrantCheckpoint, SequentialsPlansAndNestedRegionsEqualPlain) {
  Sequential net(Linear(16, 32), torch::nn::GELU(), torch::nn::Dropout(0.3), Linear(32, 16),
                 torch::nn::Tanh(), Linear(16, 4));
  const at::Tensor x = torch::randn({8, 16});
  const auto plain = [](Sequential& m, const at::Tensor& in) { return m->forward(in); };
  expect_checkpoint_equals_plain<Sequential>(
      net, x, plain,
      [](Sequential& m, const at::Tensor& in) { return checkpoint_sequential(m, 3, in); });
  expect_checkpoint_equals_plain<Sequential>(
      net, x, plain, [](Sequential& m, const at::Tensor& in) {
        return CheckpointPlan::parse("(0 (1 2) 3) 4 5").run(chain_of(m), in);
      });
}

TEST(ReentrantCheckpoint, HoldsNoActivations) {
  Sequential net(Linear(256, 256), torch::nn::GELU(), Linear(256, 256), torch::nn::GELU());
  const at::Tensor x = torch::randn({256, 256});
  MemoryMeter meter;
  const at::Tensor y = checkpoint(net, x);
  EXPECT_EQ(meter.live(), static_cast<int64_t>(y.nbytes()));
}

struct CountsCalls final : torch::autograd::PostAccumulateGradHook {
  explicit CountsCalls(int& calls) : calls(calls) {}
  void operator()(const torch::autograd::Variable&) override { ++calls; }
  int& calls;
};

TEST(ReentrantCheckpoint, SharedWeightsAccumulateOncePerBackward) {
  Linear linear(4, 4);
  int calls = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(linear->weight,
                                                 std::make_unique<CountsCalls>(calls));
  const at::Tensor x = torch::randn({2, 4});
  checkpoint(linear, checkpoint(linear, x).sin()).sum().backward();
  const at::Tensor gradient = linear->weight.grad().clone();
  EXPECT_EQ(calls, 1);
  linear->zero_grad();
  linear(linear(x).sin()).sum().backward();
  EXPECT_TRUE(torch::equal(gradient, linear->weight.grad()));
}

TEST(ReentrantCheckpoint, AutocastOfForwardHoldsInRecompute) {
  Sequential net(Linear(16, 16), torch::nn::GELU(), Linear(16, 16));
  const at::Tensor x = torch::randn({8, 16});
  const auto under_autocast = [](auto f) {
    return [f](const at::Tensor& in) {
      const HostAutocast guard;
      return f(in);
    };
  };
  expect_equal(
      run_trial(net, under_autocast([&](const at::Tensor& in) { return net->forward(in); }), x),
      run_trial(net, under_autocast([&](const at::Tensor& in) { return checkpoint(net, in); }), x));
}

TEST(ReentrantCheckpoint, SeveralOutputsAndOtherValuesPass) {
  const at::Tensor x = torch::randn({3}, at::requires_grad());
  const auto [y, none, index, z, text] = checkpoint(
      [](const at::Tensor& in, const char* s) {
        return std::make_tuple(in.exp(), std::optional<at::Tensor>(), in.argmax(), in.sin(),
                               std::string(s));
      },
      x, "text");
  EXPECT_FALSE(none.has_value());
  EXPECT_FALSE(index.requires_grad());
  EXPECT_EQ(text, "text");
  (y.sum() + z.sum()).backward();
  EXPECT_TRUE(torch::allclose(x.grad(), x.detach().exp() + x.detach().cos()));
  x.mutable_grad().reset();
  z.sum();  // of several outputs one may be unused
  std::get<0>(
      checkpoint([](const at::Tensor& in) { return std::make_tuple(in.exp(), in.sin()); }, x))
      .sum()
      .backward();
  EXPECT_TRUE(torch::equal(x.grad(), x.detach().exp()));
}

TEST(ReentrantCheckpoint, WeightsOfFreeFunctionsAreListedOrRefused) {
  Linear linear(4, 4);
  const at::Tensor x = torch::randn({2, 4}, at::requires_grad());
  auto f = [linear](const at::Tensor& in) mutable { return linear(in.sin()).sin(); };
  const at::Tensor y = checkpoint(CheckpointOptions().name("head"), f, x);
  EXPECT_THAT(message_of<Error>([&] { y.sum().backward(); }),
              ::testing::AllOf(HasSubstr("checkpoint of 'head'"),
                               HasSubstr("neither an input nor a parameter"),
                               HasSubstr("CheckpointOptions().parameters()")));
  checkpoint(CheckpointOptions().parameters(linear->parameters()), f, x).sum().backward();
  const at::Tensor gradient = linear->weight.grad().clone();
  linear->zero_grad();
  f(x).sum().backward();
  EXPECT_TRUE(torch::equal(gradient, linear->weight.grad()));
  EXPECT_TRUE(checkpoint(f, x.detach()).requires_grad());  // no region, so nothing is lost
}

TEST(ReentrantCheckpoint, RefusesWhatOnlyTheHookCanDo) {
  const at::Tensor x = torch::randn({3}, at::requires_grad());
  const auto f = [](const at::Tensor& in) { return in.sin().exp(); };
  EXPECT_THAT(message_of<Error>(
                  [&] { torch::autograd::grad({checkpoint(f, x).sum()}, {x}, {}, true, true); }),
              HasSubstr("gradient of gradients"));
  EXPECT_THAT(message_of<Error>([] { OffloadActivations({}); }), HasSubstr("not built for"));
  const at::Tensor y = checkpoint(
      [](const at::Tensor& in) {
        return is_recomputing() ? torch::cat({in, in}) : in.sin();
      },
      x);
  EXPECT_THAT(message_of<Error>([&] { y.sum().backward(); }), HasSubstr("another shape"));
  const at::Tensor input = x.detach().clone().requires_grad_() * 1;
  const at::Tensor z = checkpoint(f, input);
  input.mul_(2);
  EXPECT_THAT(message_of<std::exception>([&] { z.sum().backward(); }),
              HasSubstr("modified by an inplace operation"));
  EXPECT_TRUE(torch::equal(checkpoint(
                               [](const at::Tensor& in) {
                                 return keep([](const at::Tensor& a) { return a.exp(); }, in);
                               },
                               x),
                           x.exp()));
}

TEST(ReentrantCheckpoint, ExceptionsInRecomputeLeaveNoStateBehind) {
  const at::Tensor x = torch::randn({8}, at::requires_grad());
  const at::Tensor y = checkpoint(
      [](const at::Tensor& in) {
        const at::Tensor h = torch::dropout(in, 0.5, true).sin();
        if (is_recomputing()) {
          throw std::runtime_error("the function failed");
        }
        return h;
      },
      x);
  const at::Tensor before = rng_state();
  EXPECT_EQ(message_of<std::runtime_error>([&] { y.sum().backward(); }), "the function failed");
  EXPECT_TRUE(torch::equal(before, rng_state()));
  EXPECT_FALSE(is_recomputing());
}

}  // namespace
}  // namespace lockstep::testing
