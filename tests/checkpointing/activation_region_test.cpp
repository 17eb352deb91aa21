// What a region refuses, restores and leaves behind.
#include <gmock/gmock.h>
#include <lockstep/checkpointing/activation/impl/engine_hook.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/collectives/exceptions.h>

#include <stdexcept>

#include "activation_models.h"
#include "activation_trial.h"
#include "test_names.h"

namespace lockstep::testing {
namespace {

using torch::nn::Linear;
using torch::nn::Sequential;

TEST(Recompute, OtherPathInRecomputeNamesTheSlotAndBothLayouts) {
  const at::Tensor x = torch::randn({3}, at::requires_grad());
  const auto message = [&](auto f) {
    const at::Tensor y = checkpoint(CheckpointOptions().name("block 3").debug(true), f, x);
    return message_of<Error>([&] { y.sum().backward(); });
  };
  EXPECT_THAT(message([](const at::Tensor& in) {
                return is_recomputing() ? torch::cat({in, in}).sin().sum() : in.sin().sum();
              }),
              AllOf(HasSubstr("checkpoint of 'block 3'"), HasSubstr("slot 0 was Float[3] on cpu"),
                    HasSubstr("is Float[6] on cpu"), HasSubstr("aten::cat in recompute")));
  EXPECT_THAT(message([](const at::Tensor& in) {
                return is_recomputing() ? in.to(at::kDouble).sin() : in.sin();
              }),
              AllOf(HasSubstr("slot 0 was Float[3]"), HasSubstr("is Double[3]")));
  EXPECT_THAT(
      message([](const at::Tensor& in) { return is_recomputing() ? in.sin() : in.sin().exp(); }),
      AllOf(HasSubstr("recompute saves 1 tensors, forward saved 2"),
            HasSubstr("slot 1 (Float[3] on cpu) is missing")));
  const at::Tensor y = checkpoint(
      CheckpointOptions().early_stop(false),
      [](const at::Tensor& in) { return is_recomputing() ? in.sin().exp() : in.sin(); }, x);
  EXPECT_THAT(message_of<Error>([&] { y.sum().backward(); }),
              HasSubstr("saves more tensors than the 1 of forward"));
}

TEST(Recompute, InputsWithoutGradientTrainAndFrozenModulesDoNot) {
  Linear linear(4, 4);
  const at::Tensor x = torch::randn({2, 4});
  const at::Tensor y = checkpoint(linear, x);
  ASSERT_TRUE(y.requires_grad());
  y.sum().backward();
  EXPECT_TRUE(torch::equal(linear->weight.grad(), torch::ones({2, 4}).t().mm(x)));
  for (at::Tensor& parameter : linear->parameters()) {
    parameter.set_requires_grad(false);
  }
  EXPECT_FALSE(checkpoint(linear, x).requires_grad());
}

/// Batch norm updates them without a new version.
TEST(Checkpoint, RunningStatisticsAmongTheInputsMoveOnce) {
  const auto statistics_after = [](bool checkpointed) {
    const at::Tensor x = torch::arange(24.0).reshape({4, 3, 2}).requires_grad_();
    const at::Tensor mean = torch::zeros({3}), variance = torch::ones({3});
    const auto norm = [](const at::Tensor& in, const at::Tensor& m, const at::Tensor& v) {
      return at::batch_norm(in, {}, {}, m, v, /*training=*/true, 0.1, 1e-5, false);
    };
    const auto nested = [norm](const at::Tensor& in, const at::Tensor& m, const at::Tensor& v) {
      return checkpoint(norm, in.sin(), m, v);
    };
    const at::Tensor y =
        checkpointed ? checkpoint(nested, x, mean, variance) : norm(x.sin(), mean, variance);
    y.square().sum().backward();
    return torch::stack({mean, variance});
  };
  EXPECT_TRUE(torch::equal(statistics_after(true), statistics_after(false)));
}

TEST(Recompute, RecomputingIsKnownToStatefulLayers) {
  int counted = 0;
  int entered = 0;
  const at::Tensor x = torch::randn({3}, at::requires_grad());
  const at::Tensor y = checkpoint(
      [&](const at::Tensor& in) {
        ++entered;
        counted += is_recomputing() ? 0 : 1;
        return in.sin();
      },
      x);
  EXPECT_FALSE(is_recomputing());
  y.sum().backward();
  EXPECT_FALSE(is_recomputing());
  EXPECT_EQ(entered, 2);
  EXPECT_EQ(counted, 1);
}

TEST(Recompute, WithoutGradModeThereIsNoRegion) {
  Linear linear(64, 64);
  linear->eval();
  const at::Tensor x = torch::randn({8, 64});
  const at::NoGradGuard no_grad;
  MemoryMeter meter;
  for (int call = 0; call < 100; ++call) {
    const at::Tensor y = checkpoint(
        [&](const at::Tensor& in) {
          EXPECT_EQ(activation::HookScope::top(), nullptr);
          return linear(in);
        },
        x);
    EXPECT_FALSE(y.requires_grad());
  }
  EXPECT_EQ(meter.live(), 0);
}

TEST(Recompute, AutocastOfForwardHoldsInRecompute) {
  Sequential net(Linear(16, 16), torch::nn::GELU(), Linear(16, 16));
  const at::Tensor x = torch::randn({8, 16});
  const auto under_autocast = [&](auto f) {
    return [f](const at::Tensor& in) {
      const HostAutocast guard;
      return f(in);
    };
  };
  expect_equal(
      run_trial(net, under_autocast([&](const at::Tensor& in) { return net->forward(in); }), x),
      run_trial(net, under_autocast([&](const at::Tensor& in) { return checkpoint(net, in); }), x));

  const at::Tensor y = under_autocast([&](const at::Tensor& in) {
    return checkpoint(
        [net](const at::Tensor& h) mutable {
          if (is_recomputing()) {
            at::autocast::set_autocast_enabled(at::kCPU, false);
          }
          return net->forward(h);
        },
        in);
  })(x);
  EXPECT_THAT(message_of<Error>([&] { y.sum().backward(); }),
              AllOf(HasSubstr("BFloat16[8, 16]"), HasSubstr("Float[8, 16]")));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(Recompute, InputOrWeightChangedAfterForwardThrows) {
  Linear linear(4, 4);
  const at::Tensor x = torch::randn({2, 4});
  at::Tensor y = checkpoint(CheckpointOptions().name("head"), linear, x);
  x.mul_(2);
  EXPECT_THAT(message_of<Error>([&] { y.sum().backward(); }),
              AllOf(HasSubstr("checkpoint of 'head': input 0 is modified in place after forward")));
  y = checkpoint([linear](const at::Tensor& in) mutable { return linear(in.sin()).sin(); },
                 torch::randn({2, 4}, at::requires_grad()));
  {
    const at::NoGradGuard no_grad;
    linear->weight.mul_(2);
  }
  EXPECT_THAT(message_of<Error>([&] { y.sum().backward(); }),
              HasSubstr("a tensor from outside the region, is modified in place after forward"));
  EXPECT_THAT(message_of<Error>([] {
                static_cast<void>(checkpoint([](at::Tensor in) { return in.mul_(2).sin(); },
                                             torch::randn({2}, at::requires_grad()) * 1));
              }),
              HasSubstr("input 0 is modified in place inside the region"));
  EXPECT_THAT(message_of<Error>([] {
                checkpoint(
                    [](const at::Tensor& in) {
                      at::Tensor h = in.exp();
                      const at::Tensor g = h.sin();
                      h.mul_(2);
                      return (h + g).exp();
                    },
                    torch::randn({2}, at::requires_grad()))
                    .sum()
                    .backward();
              }),
              HasSubstr("modified in place, inside the region"));
}

TEST(Recompute, ExceptionsLeaveNoStateBehind) {
  const at::Tensor x = torch::randn({8}, at::requires_grad());
  const auto failing = [](bool in_recompute) {
    return [in_recompute](const at::Tensor& in) {
      const at::Tensor h = torch::dropout(in, 0.5, true).sin();
      if (is_recomputing() == in_recompute) {
        throw std::runtime_error("the function failed");
      }
      return h.exp();
    };
  };
  EXPECT_EQ(
      message_of<std::runtime_error>([&] { static_cast<void>(checkpoint(failing(false), x)); }),
      "the function failed");
  EXPECT_EQ(activation::HookScope::top(), nullptr);

  const at::Tensor y = checkpoint(failing(true), x);
  torch::rand({3});  // so that the stream is not where the recompute leaves it
  const at::Tensor before = rng_state();
  const HostAutocast guard;
  EXPECT_EQ(message_of<std::runtime_error>([&] { y.sum().backward(); }), "the function failed");
  EXPECT_TRUE(torch::equal(before, rng_state()));
  EXPECT_EQ(activation::HookScope::top(), nullptr);
  EXPECT_FALSE(is_recomputing());
  EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
}

}  // namespace
}  // namespace lockstep::testing
