// Behaviours of checkpointed regions: kept parts, errors, buffers, restored state, and the four
// kinds of model against their plain runs.
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <lockstep/checkpointing/activation/engine_hook.h>
#include <lockstep/checkpointing/activation/keep.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/checkpointing/activation/operator_trace.h>
#include <lockstep/collectives/error.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "activation_trial.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::Sequential;

/// Autocast on the host for the life of the object.
struct HostAutocast {
  HostAutocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~HostAutocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

struct Cost {
  int64_t megabytes;
  int64_t products_in_backward;
  at::Tensor gradient;
};

Cost cost_of(const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& f) {
  torch::manual_seed(3);
  const at::Tensor a = torch::randn({512, 512}, at::requires_grad());
  const at::Tensor b = torch::randn({512, 512}, at::requires_grad());
  MemoryMeter meter;
  const at::Tensor y = f(a, b);
  const int64_t live = meter.live();
  std::vector<std::string> operators;
  {
    activation::OperatorTrace trace(operators);
    y.backward();
  }
  return {(live + (1 << 19)) >> 20, std::count(operators.begin(), operators.end(), "aten::mm"),
          a.grad()};
}

TEST(CheckpointFacts, N17_KeptProductCostsItsOutputAndNoRecompute) {
  const auto f = [](const at::Tensor& a, const at::Tensor& b) { return a.cos().mm(b).sin().sum(); };
  const auto kept = [](const at::Tensor& a, const at::Tensor& b) {
    return keep([](const at::Tensor& l, const at::Tensor& r) { return l.mm(r); }, a.cos(), b)
        .sin()
        .sum();
  };
  const Cost plain = cost_of(f);
  EXPECT_EQ(plain.megabytes, 2);
  EXPECT_EQ(plain.products_in_backward, 2);
  const Cost all =
      cost_of([&](const at::Tensor& a, const at::Tensor& b) { return checkpoint(f, a, b); });
  EXPECT_EQ(all.megabytes, 0);
  EXPECT_EQ(all.products_in_backward, 3);
  const Cost selective =
      cost_of([&](const at::Tensor& a, const at::Tensor& b) { return checkpoint(kept, a, b); });
  EXPECT_EQ(selective.megabytes, 1);
  EXPECT_EQ(selective.products_in_backward, 2);
  EXPECT_TRUE(torch::equal(plain.gradient, all.gradient));
  EXPECT_TRUE(torch::equal(plain.gradient, selective.gradient));
}

TEST(CheckpointFacts, N18_KeptTensorChangedInPlaceThrows) {
  const at::Tensor x = torch::randn({4, 4}, at::requires_grad());
  const at::Tensor y = checkpoint(
      [](const at::Tensor& in) {
        at::Tensor h = keep([](const at::Tensor& a) { return a.mm(a); }, in.sin());
        return h.relu_().exp();
      },
      x);
  EXPECT_THAT(message_of<Error>([&] { y.sum().backward(); }),
              HasSubstr("has been modified in place since"));
}

// Python's selective form allows one backward; here a retained graph may run again.
TEST(CheckpointFacts, N19_KeptTensorsLiveAsLongAsTheGraph) {
  const at::Tensor x = torch::randn({256, 256}, at::requires_grad());
  const auto f = [](const at::Tensor& in) {
    return keep([](const at::Tensor& a) { return a.mm(a); }, in.sin()).exp().sum();
  };
  MemoryMeter meter;
  {
    const at::Tensor dropped = checkpoint(f, x);
    EXPECT_GT(meter.live(), 256 * 256 * 4);
  }
  EXPECT_EQ(meter.live(), 0);
  const at::Tensor expected = torch::autograd::grad({f(x)}, {x})[0];
  const int64_t before = meter.live();
  const at::Tensor y = checkpoint(f, x);
  for (bool retain : {true, true, false}) {
    EXPECT_TRUE(torch::equal(torch::autograd::grad({y}, {x}, {}, retain)[0], expected));
  }
  EXPECT_LE(meter.live() - before, 64);  // y itself
}

TEST(CheckpointFacts, N20_OtherPathInRecomputeNamesTheSlotAndBothLayouts) {
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

Sequential normalised(const std::string& kind) {
  Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
  if (kind == "batch norm") {
    net->push_back(torch::nn::BatchNorm2d(8));
  } else if (kind == "cumulative batch norm") {
    net->push_back(torch::nn::BatchNorm2d(torch::nn::BatchNormOptions(8).momentum(std::nullopt)));
  } else if (kind == "group norm") {
    net->push_back(torch::nn::GroupNorm(2, 8));
  } else {
    net->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({8, 8, 8})));
  }
  net->push_back(torch::nn::ReLU());
  return net;
}

TEST(CheckpointFacts, N25_NormsGiveThePlainBuffersAfterTwoSteps) {
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

TEST(CheckpointFacts, N25_BuffersOfFreeFunctionsAndNestedRegionsMoveOnce) {
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

TEST(CheckpointFacts, N26_InputsWithoutGradientTrainAndFrozenModulesDoNot) {
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

TEST(CheckpointFacts, N27_RecomputingIsKnownToStatefulLayers) {
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

TEST(CheckpointFacts, N28_WithoutGradModeThereIsNoRegion) {
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

TEST(CheckpointFacts, N29_AutocastOfForwardHoldsInRecompute) {
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

TEST(CheckpointFacts, N30_InputOrWeightChangedAfterForwardThrows) {
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
                checkpoint([](at::Tensor in) { return in.mul_(2).sin(); },
                           torch::randn({2}, at::requires_grad()) * 1);
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

TEST(CheckpointFacts, N30_ExceptionsLeaveNoStateBehind) {
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
  EXPECT_EQ(message_of<std::runtime_error>([&] { checkpoint(failing(false), x); }),
            "the function failed");
  EXPECT_EQ(activation::HookScope::top(), nullptr);

  const at::Tensor y = checkpoint(failing(true), x);
  const at::Tensor before = rng_state();
  const HostAutocast guard;
  EXPECT_EQ(message_of<std::runtime_error>([&] { y.sum().backward(); }), "the function failed");
  EXPECT_TRUE(torch::equal(before, rng_state()));
  EXPECT_EQ(activation::HookScope::top(), nullptr);
  EXPECT_FALSE(is_recomputing());
  EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
}

struct AttentionImpl : torch::nn::Cloneable<AttentionImpl> {
  AttentionImpl() { reset(); }
  void reset() override {
    layer = register_module(
        "layer",
        torch::nn::TransformerEncoderLayer(
            torch::nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0.2)));
  }
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
  torch::nn::TransformerEncoderLayer layer{nullptr};
};
TORCH_MODULE(Attention);

struct RecurrentImpl : torch::nn::Cloneable<RecurrentImpl> {
  RecurrentImpl() { reset(); }
  void reset() override {
    lstm = register_module(
        "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(16, 8).num_layers(2).dropout(0.3)));
  }
  at::Tensor forward(const at::Tensor& x) {
    auto [y, state] = lstm(x);
    return y + std::get<0>(state).sum();
  }
  torch::nn::LSTM lstm{nullptr};
};
TORCH_MODULE(Recurrent);

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
