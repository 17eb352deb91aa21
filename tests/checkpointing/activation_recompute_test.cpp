// Behaviours of Python's torch.utils.checkpoint that checkpoint() shares.
#include <gmock/gmock.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/collectives/exceptions.h>

#include <map>
#include <optional>
#include <tuple>

#include "activation_trial.h"
#include "test_names.h"

namespace lockstep::testing {
namespace {

using torch::nn::Dropout;
using torch::nn::GELU;
using torch::nn::Linear;
using torch::nn::Sequential;

struct CountedImpl : torch::nn::Module {
  CountedImpl() : linear(register_module("linear", Linear(8, 8))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++calls;
    return torch::tanh(linear(x));
  }
  Linear linear;
  int calls = 0;
};
TORCH_MODULE(Counted);

Sequential mlp(double dropout = 0.0) {
  return Sequential(Linear(16, 32), GELU(), Dropout(dropout), Linear(32, 16), torch::nn::Tanh(),
                    Linear(16, 4));
}

TEST(Recompute, SegmentsButTheLastRunTwice) {
  std::vector<Counted> modules;
  Sequential sequential;
  for (int i = 0; i < 10; ++i) {
    modules.emplace_back();
    sequential->push_back(modules.back());
  }
  const at::Tensor y = checkpoint_sequential(sequential, 2, torch::randn({4, 8}));
  for (const Counted& module : modules) {
    EXPECT_EQ(module->calls, 1);
  }
  y.sum().backward();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(modules[i]->calls, i < 5 ? 2 : 1) << i;
  }
}

TEST(Recompute, SequentialsAndListsGiveThePlainGradients) {
  const at::Tensor x = torch::randn({8, 16}, at::requires_grad());
  const auto plain = [](Sequential& m, const at::Tensor& in) { return m->forward(in); };
  for (int64_t segments : {1, 2, 3, 4, 6}) {
    expect_checkpoint_equals_plain<Sequential>(mlp(), x, plain,
                                               [&](Sequential& m, const at::Tensor& in) {
                                                 return checkpoint_sequential(m, segments, in);
                                               });
  }
  expect_checkpoint_equals_plain<Sequential>(
      mlp(), x, plain, [](Sequential& m, const at::Tensor& in) {
        std::vector<torch::nn::AnyModule> list(m->begin(), m->end());
        return checkpoint(
            [list](at::Tensor h) mutable {
              for (auto& module : list) {
                h = module.forward(h);
              }
              return h;
            },
            in);
      });
}

TEST(Recompute, GradAndDoubleBackwardGiveThePlainGradients) {
  Sequential m = mlp();
  const at::Tensor x = torch::randn({8, 16}, at::requires_grad());
  const auto second = [&](const at::Tensor& y) {
    const auto first = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
    std::vector<at::Tensor> wanted = m->parameters();
    wanted.push_back(x);
    return torch::autograd::grad({first.pow(2).sum()}, wanted, {}, true, false, true);
  };
  const auto plain = second(m->forward(x));
  const auto again = second(checkpoint(m, x));
  for (std::size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(plain[i].defined(), again[i].defined());
    EXPECT_TRUE(!plain[i].defined() || torch::equal(plain[i], again[i])) << i;
  }
}

TEST(Recompute, DropoutDrawsTheSameNumbersInRecompute) {
  Sequential m = mlp(0.5);
  const at::Tensor x = torch::randn({64, 16}, at::requires_grad());
  for (int repeat = 0; repeat < 5; ++repeat) {
    expect_checkpoint_equals_plain<Sequential>(
        m, x, [](Sequential& s, const at::Tensor& in) { return s->forward(in); },
        [](Sequential& s, const at::Tensor& in) { return checkpoint(s, in); });
  }
}

TEST(Recompute, RandomStreamIsWhereThePlainRunLeavesIt) {
  const at::Tensor x = torch::randn({8}, at::requires_grad());
  const auto f = [](const at::Tensor& in) { return torch::sin(in * torch::randn({8})); };
  torch::manual_seed(1);
  f(x).sum().backward();
  const at::Tensor plain = rng_state();
  torch::manual_seed(1);
  const at::Tensor y = checkpoint(f, x);
  EXPECT_TRUE(torch::equal(plain, rng_state()));
  torch::manual_seed(99);  // another stream in between stays untouched, too
  const at::Tensor between = rng_state();
  y.sum().backward();
  EXPECT_TRUE(torch::equal(between, rng_state()));
}

TEST(Recompute, WithoutPreserveRngRecomputeDrawsOn) {
  const at::Tensor x = torch::randn({64}, at::requires_grad());
  const at::Tensor y = checkpoint(
      CheckpointOptions().preserve_rng(false).early_stop(false),
      [](const at::Tensor& in) { return torch::dropout(in, 0.5, true); }, x);
  const at::Tensor before = rng_state();
  y.sum().backward();
  EXPECT_FALSE(torch::equal(before, rng_state()));
}

TEST(Recompute, OtherInputsAndOutputsPassInOrder) {
  const at::Tensor x = torch::randn({3}, at::requires_grad());
  const auto [y, none, number, flag, text] = checkpoint(
      [](const at::Tensor& in, const at::Tensor& undefined, int n, bool b, const char* s) {
        EXPECT_FALSE(undefined.defined());
        return std::make_tuple(in.exp(), std::optional<at::Tensor>(), n + 1, !b, std::string(s));
      },
      x, at::Tensor(), 41, false, "text");
  EXPECT_FALSE(none.has_value());
  EXPECT_EQ(number, 42);
  EXPECT_TRUE(flag);
  EXPECT_EQ(text, "text");
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), x.detach().exp()));
  int runs = 0;
  checkpoint([&runs](const at::Tensor& in) { static_cast<void>(in), ++runs; }, x);  // void
  EXPECT_EQ(runs, 1);
}

TEST(Recompute, SecondBackwardWithoutRetainSaysSo) {
  const at::Tensor x = torch::randn({3}, at::requires_grad());
  const at::Tensor y = checkpoint([](const at::Tensor& in) { return in.sin().exp().sum(); }, x);
  y.backward();
  EXPECT_THAT(message_of<std::exception>([&] { y.backward(); }),
              HasSubstr("backward through the graph a second time"));
}

// Python's reentrant form must be told so; here a region without a gradient is no region.
TEST(Recompute, RegionWithoutGradientRunsOnceAndNeedsNone) {
  int calls = 0;
  const at::Tensor y = checkpoint(
      [&](const at::Tensor& in) {
        ++calls;
        return in.sin();
      },
      torch::randn({3}));
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(calls, 1);
}

std::vector<int64_t> live_at_each_step(bool checkpointed, bool retain) {
  const at::Tensor x = torch::randn({1 << 16}, at::requires_grad());
  MemoryMeter meter;
  std::vector<int64_t> live;
  const auto chain = [&](at::Tensor h) {
    for (int i = 0; i < 10; ++i) {
      h = h.sin();
      if (!is_recomputing()) {
        h.register_hook([&](const at::Tensor&) { live.push_back(meter.live()); });
      }
    }
    return h;
  };
  const at::Tensor y = checkpointed ? checkpoint(chain, x) : chain(x);
  y.sum().backward({}, retain);
  return live;
}

TEST(Recompute, EachSlotIsFreedAsSoonAsItIsUsed) {
  const auto plain = live_at_each_step(false, false);
  for (bool retain : {false, true}) {
    const auto live = live_at_each_step(true, retain);
    ASSERT_EQ(live.size(), plain.size());
    for (std::size_t step = 2; step < live.size(); ++step) {
      EXPECT_EQ(live[step] - live[step - 1], plain[step] - plain[step - 1]) << step;
      EXPECT_LT(live[step], live[step - 1]);
    }
  }
}

// The generator of each CUDA device in use is saved with the host's; without one, what is left of
// Python's test is that tensors inside nested containers are inputs.
TEST(Recompute, TensorsInNestedContainersAreInputs) {
  using Nested = std::map<std::string, std::vector<std::pair<at::Tensor, int>>>;
  const at::Tensor a = torch::randn({3}, at::requires_grad());
  const at::Tensor b = torch::randn({3});
  const Nested nested = {{"a", {{a, 2}}}, {"b", {{b, 3}}}};
  const auto f = [](const Nested& in) {
    return (in.at("a")[0].first * in.at("a")[0].second + in.at("b")[0].first).sin();
  };
  checkpoint(f, nested).sum().backward();
  EXPECT_TRUE(torch::equal(a.grad(), (a.detach() * 2 + b).cos() * 2));
  const at::Tensor y = checkpoint(f, nested);
  b.add_(1);
  EXPECT_THAT(message_of<Error>([&] { y.sum().backward(); }), HasSubstr("input 1 is modified"));
}

TEST(Recompute, DefaultDtypeOfForwardHoldsInRecompute) {
  const at::Tensor x = torch::randn({3}, at::requires_grad().dtype(at::kDouble));
  const auto outer = torch::get_default_dtype();
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
  const at::Tensor y =
      checkpoint([](const at::Tensor& in) { return in * torch::ones({3}) * in; }, x);
  torch::set_default_dtype(outer);
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), 2 * x.detach()));
  EXPECT_EQ(torch::get_default_dtype(), outer);
}

struct Calls {
  int function = 0;
  int tail = 0;
};

Calls calls_of(const CheckpointOptions& options, std::optional<bool> override = {}) {
  Calls calls;
  const at::Tensor x = torch::randn({3}, at::requires_grad());
  at::Tensor y;
  {
    std::optional<EarlyStop> early_stop;
    if (override.has_value()) {
      early_stop.emplace(*override);
    }
    y = checkpoint(
        options,
        [&](const at::Tensor& in) {
          ++calls.function;
          const at::Tensor h = in.exp().sin();
          ++calls.tail;
          return h + 1;
        },
        x);
  }
  y.sum().backward();
  return calls;
}

TEST(Recompute, RecomputeStopsAtTheLastNeededTensor) {
  const Calls stopped = calls_of(CheckpointOptions());
  EXPECT_EQ(stopped.function, 2);
  EXPECT_EQ(stopped.tail, 1);
  const Calls whole = calls_of(CheckpointOptions().early_stop(false));
  EXPECT_EQ(whole.function, 2);
  EXPECT_EQ(whole.tail, 2);
}

TEST(Recompute, RegionThatSavesNothingIsNotRecomputed) {
  int calls = 0;
  const at::Tensor x = torch::randn({3}, at::requires_grad());
  checkpoint([&](const at::Tensor& in) { return ++calls, in + 1; }, x).sum().backward();
  EXPECT_EQ(calls, 1);
}

TEST(Recompute, EarlyStopIsThatOfForwardAndTheOverrideWins) {
  EXPECT_EQ(calls_of(CheckpointOptions().early_stop(false), true).tail, 1);
  EXPECT_EQ(calls_of(CheckpointOptions().early_stop(true), false).tail, 2);
}

TEST(Recompute, NestedRegionsAndBackwardInsideEqualPlain) {
  const at::Tensor x = torch::randn({64, 16}, at::requires_grad());
  const auto plain = [](Sequential& m, const at::Tensor& in) {
    return m->forward(m->forward(in).matmul(torch::ones({4, 16})));
  };
  expect_checkpoint_equals_plain<Sequential>(
      mlp(0.3), x, plain, [](Sequential& m, const at::Tensor& in) {
        return checkpoint(
            [m](const at::Tensor& h) mutable {
              const at::Tensor first = checkpoint(m, h).matmul(torch::ones({4, 16}));
              return checkpoint([m](const at::Tensor& g) mutable { return checkpoint(m, g); },
                                first);
            },
            in);
      });

  const auto f = [](const at::Tensor& in) {
    const at::Tensor h = in.sin().exp();
    const at::Tensor g = torch::autograd::grad({h.sum()}, {in}, {}, true, true)[0];
    return (h * g).cos();
  };
  const at::Tensor a = torch::randn({5}, at::requires_grad());
  const at::Tensor expected = torch::autograd::grad({f(a).sum()}, {a})[0];
  for (bool early_stop : {true, false}) {
    const at::Tensor y = checkpoint(CheckpointOptions().early_stop(early_stop), f, a);
    EXPECT_TRUE(torch::equal(torch::autograd::grad({y.sum()}, {a})[0], expected)) << early_stop;
  }
}

}  // namespace
}  // namespace lockstep::testing
