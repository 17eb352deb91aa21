// OffloadActivations: on the host, where a second buffer stands for host memory beside a device.
#include <gmock/gmock.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/checkpointing/activation/offload.h>
#include <lockstep/collectives/exceptions.h>

#include <optional>

#include "activation_trial.h"
#include "test_names.h"

namespace lockstep::testing {
namespace {

using torch::nn::Linear;
using torch::nn::Sequential;

Sequential deep() {
  Sequential net;
  for (int layer = 0; layer < 8; ++layer) {
    net->push_back(Linear(64, 64));
    net->push_back(torch::nn::GELU());
    net->push_back(torch::nn::Dropout(0.1));
  }
  return net;
}

at::Tensor run(Sequential& net, const at::Tensor& x, bool checkpointed) {
  return checkpointed ? checkpoint_sequential(net, 8, x) : net->forward(x);
}

struct Figures {
  Trial trial;
  int64_t peak;
  OffloadActivations::Figures offload;
};

Figures trial_of(Sequential net, bool offloads, bool checkpointed,
                 const OffloadOptions& options = {}) {
  Figures figures;
  for (at::Tensor& parameter : net->parameters()) {
    parameter.mutable_grad() = torch::zeros_like(parameter);
  }
  MemoryMeter meter;
  std::optional<OffloadActivations> offload;
  figures.trial = run_trial(
      net,
      [&](const at::Tensor& in) {
        if (offloads) {
          offload.emplace(net, options);
        }
        return run(net, in, checkpointed);
      },
      torch::ones({512, 64}));
  figures.peak = meter.peak();
  if (offload.has_value()) {
    figures.offload = offload->figures();
  }
  return figures;
}

TEST(OffloadedTensors, OffloadLowersThePeakWithThePlainGradients) {
  Sequential net = deep();
  const Figures plain = trial_of(net, false, false);
  const Figures ours = trial_of(net, true, false);
  expect_equal(plain.trial, ours.trial);
  EXPECT_LT(ours.peak, plain.peak / 2);
  EXPECT_GT(ours.offload.bytes, plain.peak / 2);
  EXPECT_EQ(ours.offload.loads, ours.offload.tensors);
  // The first that backward asks for cannot be foreseen; forward's order foresees the rest.
  EXPECT_GE(ours.offload.prefetched, ours.offload.loads - 2);
}

TEST(OffloadedTensors, OffloadMovesTheInputsOfCheckpointedRegions) {
  Sequential net = deep();
  const Figures plain = trial_of(net, false, true);
  const Figures ours = trial_of(net, true, true);
  expect_equal(plain.trial, ours.trial);
  EXPECT_LT(ours.peak, plain.peak * 3 / 4);
  EXPECT_GE(ours.offload.tensors, 7);
}

TEST(OffloadedTensors, NoMoreThanMaxBytesMove) {
  Sequential net = deep();
  const Figures plain = trial_of(net, false, false);
  const int64_t all = trial_of(net, true, false).offload.bytes;
  for (const int64_t most : {int64_t{0}, int64_t{1}, all / 2, all}) {
    const Figures ours = trial_of(net, true, false, OffloadOptions().max_bytes(most));
    expect_equal(plain.trial, ours.trial);
    EXPECT_LE(ours.offload.bytes, most);
    EXPECT_GT(ours.offload.bytes, most - all / 4);
  }
  EXPECT_THROW(trial_of(net, true, false, OffloadOptions().max_bytes(-1)), Error);
}

TEST(OffloadedTensors, OffloadLeavesWeightsIntegersAndSmallTensors) {
  Linear linear(512, 512);
  const at::Tensor index = torch::arange(512).remainder(4);
  const auto figures_of = [&](const OffloadOptions& options, bool known) {
    const OffloadActivations offload(known ? linear->parameters() : std::vector<at::Tensor>(),
                                     options);
    linear(linear(torch::ones({512, 512}).sigmoid())).index_select(0, index).sum().backward();
    return offload.figures();
  };
  EXPECT_EQ(figures_of(OffloadOptions(), true).tensors, 2);  // both inputs
  EXPECT_EQ(figures_of(OffloadOptions(), false).tensors, 3);
  EXPECT_EQ(figures_of(OffloadOptions().min_bytes(2 << 20), true).tensors, 0);
}

TEST(Offload, SharedTensorsMoveOnce) {
  const at::Tensor x = torch::randn({128, 256}, at::requires_grad());
  const auto f = [&] {
    const at::Tensor h = x.exp();
    return (h.sin() + h.cos() + h.square()).sum();
  };
  const at::Tensor expected = torch::autograd::grad({f()}, {x})[0];
  const OffloadActivations offload(std::vector<at::Tensor>{});
  EXPECT_TRUE(torch::equal(torch::autograd::grad({f()}, {x})[0], expected));
  EXPECT_EQ(offload.figures().tensors, 1);
  EXPECT_EQ(offload.figures().loads, 1);
}

TEST(Offload, RetainedGraphsAndDoubleBackwardEqualPlain) {
  const at::Tensor x = torch::randn({128, 256}, at::requires_grad());
  const auto gradients = [&](bool offloads) {
    std::optional<OffloadActivations> offload;
    if (offloads) {
      offload.emplace(std::vector<at::Tensor>{});
    }
    const at::Tensor y = x.sin().exp().sum();
    offload.reset();  // backward may come later
    std::vector<at::Tensor> all = {torch::autograd::grad({y}, {x}, {}, true)[0]};
    const at::Tensor first = torch::autograd::grad({y}, {x}, {}, true, true)[0];
    all.push_back(torch::autograd::grad({first.square().sum()}, {x})[0]);
    return all;
  };
  const auto plain = gradients(false);
  const auto ours = gradients(true);
  EXPECT_TRUE(torch::equal(plain[0], ours[0]));
  EXPECT_TRUE(torch::equal(plain[1], ours[1]));
}

TEST(Offload, WeightChangedBeforeBackwardThrows) {
  Linear linear(64, 64);
  const at::Tensor x = torch::randn({64, 64}, at::requires_grad());
  const OffloadActivations offload(linear);
  const at::Tensor y = linear(x).sum();
  {
    const at::NoGradGuard no_grad;
    linear->weight.mul_(2);
  }
  EXPECT_THAT(message_of<Error>([&] { y.backward(); }), HasSubstr("is modified in place"));
}

TEST(Offload, InsideARegionIsRefused) {
  const at::Tensor x = torch::randn({4}, at::requires_grad());
  const auto f = [](const at::Tensor& in) {
    const OffloadActivations offload(std::vector<at::Tensor>{});
    return in.sin();
  };
  EXPECT_THAT(message_of<Error>([&] { static_cast<void>(checkpoint(f, x)); }),
              HasSubstr("open it around"));
  EXPECT_THAT(message_of<Error>([&] {
                static_cast<void>(OffloadActivations({}, OffloadOptions().prefetch(-1)));
              }),
              HasSubstr("prefetch -1"));
}

}  // namespace
}  // namespace lockstep::testing
