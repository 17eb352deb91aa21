// A region of autocast that holds updates: each forward sees the weights of its time.
#include "test_device.h"
#include "test_names.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/loss_scaler.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep {
namespace {

using amp::Autocast;
using torch::nn::Linear;

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

template <typename Optimizer>
MakeOptimizer optimizer(double lr) {
  return [lr](std::vector<at::Tensor> weights) {
    return std::make_unique<Optimizer>(std::move(weights), lr);
  };
}

std::optional<Autocast> region() {
  return std::optional<Autocast>(std::in_place, device().type(), at::kBFloat16);
}

enum class Regions { one, one_for_each_forward };

/// A loop by hand, twenty updates by `step`. Returns the losses and the weights in the end.
std::vector<at::Tensor> trained(
    Regions regions, const MakeOptimizer& make,
    const std::function<void(const at::Tensor& loss, torch::optim::Optimizer&)>& update) {
  torch::manual_seed(3);
  torch::nn::Sequential net(Linear(8, 16), torch::nn::Tanh(), Linear(16, 1));
  net->to(device());
  const at::Tensor x = randn({16, 8});
  const at::Tensor y = randn({16, 1});
  const auto optimizer = make(net->parameters());
  std::vector<at::Tensor> found;
  at::Tensor output;  // lives from one update to the next, as in many programs
  const auto outer = regions == Regions::one ? region() : std::nullopt;
  for (int i = 0; i < 20; ++i) {
    optimizer->zero_grad();
    at::Tensor loss;
    {
      const auto inner = regions == Regions::one ? std::nullopt : region();
      output = net->forward(x);
      loss = torch::mse_loss(output.to(at::kFloat), y);
    }
    found.push_back(loss.detach());
    update(loss, *optimizer);
  }
  for (const at::Tensor& weight : net->parameters()) {
    found.push_back(weight.detach());
  }
  return found;
}

void expect_regions_alike(
    const MakeOptimizer& make,
    const std::function<void(const at::Tensor&, torch::optim::Optimizer&)>& update) {
  const auto one = trained(Regions::one, make, update);
  const auto many = trained(Regions::one_for_each_forward, make, update);
  EXPECT_LT(one[19].item<float>(), 0.95F * one[0].item<float>());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(at::equal(one[i], many[i])) << i;
  }
}

TEST(SharedCasts, ALoopInOneRegionTrainsAsWithARegionForEachForward) {
  // LibTorch's SGD writes through data(), its Adam in place.
  for (const MakeOptimizer& make :
       {optimizer<torch::optim::SGD>(0.1), optimizer<torch::optim::Adam>(0.01)}) {
    expect_regions_alike(make, [](const at::Tensor& loss, torch::optim::Optimizer& optimizer) {
      loss.backward();
      optimizer.step();
    });
  }
}

TEST(SharedCasts, ALoopOfLossScalersStepsInOneRegionTrains) {
  amp::LossScaler scaler({}, device());
  expect_regions_alike(optimizer<torch::optim::SGD>(0.1),
                       [&](const at::Tensor& loss, torch::optim::Optimizer& optimizer) {
                         scaler.scale(loss).backward();
                         scaler.step(optimizer);
                         scaler.update();
                       });
}

TEST(SharedCasts, WritesByHandInARegionAreSeen) {
  Linear linear(torch::nn::LinearOptions(2, 1).bias(false));
  linear->to(device());
  const at::Tensor& weight = linear->weight;
  const at::Tensor x = ones({1, 2}, at::kBFloat16);
  const Autocast outer(device().type(), at::kBFloat16);
  const auto expect_both = [&](float value) {
    EXPECT_EQ(linear(x).item<float>(), value);  // of weight.t()
    EXPECT_EQ(at::linear(x, weight).item<float>(), value);
    const at::NoGradGuard no_grad;
    EXPECT_EQ(linear(x).item<float>(), value);
    EXPECT_EQ(at::linear(x, weight).item<float>(), value);
  };
  weight.data().fill_(1.0);
  expect_both(2.0F);
  weight.data().fill_(2.0);
  expect_both(4.0F);
  {
    const at::NoGradGuard no_grad;
    weight.mul_(2.0);
  }
  expect_both(8.0F);
  weight.set_data(full({1, 2}, 1.0));
  expect_both(2.0F);
  linear->to(device(), at::kFloat);
  weight.data().copy_(full({1, 2}, 3.0));
  expect_both(6.0F);
}

TEST(SharedCasts, WritesBetweenForwardsWhoseResultsAreStillHeldAreSeen) {
  const at::Tensor x = ones({1, 2}, at::kBFloat16);
  const at::Tensor weight = full({1, 2}, 1.0).requires_grad_();
  const Autocast outer(device().type(), at::kBFloat16);
  const at::Tensor first = at::linear(x, weight);
  {
    const at::NoGradGuard no_grad;
    weight.add_(1.0);
  }
  const at::Tensor second = at::linear(x, weight);
  EXPECT_EQ(second.item<float>(), 4.0F);
  weight.set_data(full({1, 2}, 4.0));
  const at::Tensor third = at::linear(x, weight);
  EXPECT_EQ(third.item<float>(), 8.0F);
  {
    const Autocast inner(device().type(), at::kBFloat16);
    const at::NoGradGuard no_grad;
    weight.fill_(5.0);
    const at::AutoGradMode grad(true);
    EXPECT_EQ(at::linear(x, weight).item<float>(), 10.0F);
  }
  third.sum().backward(at::Tensor(), /*retain_graph=*/true);
  weight.data().fill_(6.0);
  EXPECT_EQ(at::linear(x, weight).item<float>(), 12.0F);
}

TEST(SharedCasts, OtherTensorsInTheMemoryOfAWeightAreNotTakenForIt) {
  const at::Tensor x = ones({1, 2}, at::kBFloat16);
  const at::Tensor weight = full({2, 2}, 1.0).requires_grad_();
  const Autocast outer(device().type(), at::kBFloat16);
  const at::Tensor held = at::linear(x, weight);
  const at::Tensor twin = weight.detach().requires_grad_();
  at::linear(x, twin).sum().backward();
  EXPECT_TRUE(twin.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
  at::mm(x, weight.t()).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_EQ(at::linear(x, weight[0]).sizes(), at::IntArrayRef({1}));
}

TEST(SharedCasts, EvaluationInARegionLeavesTrainingItsGradients) {
  const at::Tensor x = ones({1, 2}, at::kBFloat16);
  const at::Tensor weight = full({1, 2}, 1.0).requires_grad_();
  const Autocast outer(device().type(), at::kBFloat16);
  const auto evaluated = [&] {
    const at::NoGradGuard no_grad;
    return at::linear(x, weight).item<float>();
  };
  for (float value : {1.0F, 2.0F, 3.0F}) {
    EXPECT_EQ(evaluated(), 2 * value);
    weight.mutable_grad().reset();
    const at::Tensor y = at::linear(x, weight);
    EXPECT_EQ(evaluated(), 2 * value);
    {
      const c10::InferenceMode inference;
      EXPECT_EQ(at::linear(x, weight).item<float>(), 2 * value);
    }
    y.sum().backward();
    EXPECT_TRUE(at::equal(weight.grad(), ones({1, 2})));
    weight.data().add_(1.0);
  }
}

TEST(SharedCasts, GradientsOfGradientsAreThoseWithoutSharedCasts) {
  const at::Tensor x = randn({4, 3});
  const at::Tensor weight = randn({3, 3});
  const auto gradients = [&](bool shared) {
    const at::Tensor w = weight.clone().requires_grad_();
    const auto ours = shared ? region() : std::nullopt;
    if (!shared) {
      at::autocast::set_autocast_enabled(device().type(), true);
      at::autocast::set_autocast_dtype(device().type(), at::kBFloat16);
      at::autocast::set_autocast_cache_enabled(false);
    }
    const at::Tensor loss = at::linear(x, w).to(at::kFloat).pow(3).sum();
    const auto first = torch::autograd::grad({loss}, {w}, {}, std::nullopt, true)[0];
    (first.square().sum() + at::linear(x, w).to(at::kFloat).sum()).backward();
    if (!shared) {
      at::autocast::set_autocast_cache_enabled(true);
      at::autocast::set_autocast_enabled(device().type(), false);
    }
    return std::vector<at::Tensor>{first.detach(), w.grad()};
  };
  const auto with = gradients(true);
  const auto without = gradients(false);
  EXPECT_TRUE(at::equal(with[0], without[0]));
  EXPECT_TRUE(at::equal(with[1], without[1]));
}

TEST(SharedCasts, WhatAProgramCastsItselfIsItsOwn) {
  const at::Tensor weight = full({1, 2}, 1.0).requires_grad_();
  const at::Tensor x = ones({1, 2}, at::kBFloat16);
  const Autocast outer(device().type(), at::kBFloat16);
  const at::Tensor y = at::linear(x, weight);
  at::Tensor mine = weight.to(at::kBFloat16);
  mine.mul_(3.0);
  EXPECT_EQ(at::linear(x, weight).item<float>(), 2.0F);
  EXPECT_EQ(weight.to(at::kBFloat16).sum().item<float>(), 2.0F);
  const Autocast off(device().type(), at::kBFloat16, /*enabled=*/false);
  mine = weight.to(at::kBFloat16);
  mine.mul_(3.0);
  EXPECT_EQ(weight.to(at::kBFloat16).sum().item<float>(), 2.0F);
}

/// Autocast as LibTorch has it.
class RawRegion {
 public:
  RawRegion() {
    at::autocast::set_autocast_enabled(device().type(), true);
    at::autocast::set_autocast_dtype(device().type(), at::kBFloat16);
  }
  ~RawRegion() {
    at::autocast::set_autocast_enabled(device().type(), false);
    at::autocast::clear_cache();
  }
};

TEST(SharedCasts, LibTorchsOwnRegionsStayAsTheyAre) {
  const at::Tensor x = ones({1, 2}, at::kBFloat16);
  const at::Tensor weight = full({1, 2}, 1.0).requires_grad_();
  const RawRegion raw;
  EXPECT_EQ(at::linear(x, weight).item<float>(), 2.0F);
  {
    const Autocast ours(device().type(), at::kBFloat16);
    const at::NoGradGuard no_grad;
    weight.fill_(4.0);
    EXPECT_EQ(at::linear(x, weight).item<float>(), 8.0F);
  }
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  EXPECT_EQ(at::linear(x, weight).item<float>(), 2.0F);  // the trap is LibTorch's
}

TEST(SharedCasts, WeightsThatComeAndGoInARegionAreForgotten) {
  const Autocast outer(device().type(), at::kBFloat16);
  const at::Tensor x = ones({1, 2}, at::kBFloat16);
  for (int i = 0; i < 2000; ++i) {
    const at::Tensor weight = full({1, 2}, static_cast<double>(i % 7)).requires_grad_();
    const at::Tensor y = at::linear(x, weight);
    ASSERT_EQ(y.item<float>(), static_cast<float>(2 * (i % 7)));
    y.backward();
    ASSERT_TRUE(at::equal(weight.grad(), ones({1, 2})));
  }
}

}  // namespace
}  // namespace lockstep
