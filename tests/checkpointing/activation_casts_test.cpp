// Checkpointed functions under amp::Autocast: recompute casts as forward did.
#include <gtest/gtest.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <vector>

namespace lockstep {
namespace {

using torch::nn::Linear;

/// The weights after five updates in a region: one for all, or one for each forward, which backward
/// is then outside of.
std::vector<at::Tensor> trained(bool one_region, bool checkpointed) {
  torch::manual_seed(5);
  Linear shared(6, 6);
  Linear last(6, 1);
  std::vector<at::Tensor> weights = shared->parameters();
  weights.insert(weights.end(), last->weight);
  torch::optim::SGD optimizer(weights, 0.1);
  const at::Tensor x = torch::randn({8, 6});
  auto twice = [shared](const at::Tensor& in) mutable {
    return torch::tanh(shared(torch::tanh(shared(in))));
  };
  const auto region = [] {
    return std::optional<amp::Autocast>(std::in_place, c10::kCPU, at::kBFloat16);
  };
  const auto outer = one_region ? region() : std::nullopt;
  for (int i = 0; i < 5; ++i) {
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const auto inner = one_region ? std::nullopt : region();
      const at::Tensor h = checkpointed ? checkpoint(twice, x) : twice(x);
      loss = last(h).to(at::kFloat).square().mean();
    }
    loss.backward();
    optimizer.step();
  }
  return weights;
}

TEST(RecomputedCasts, CheckpointsInARegionThatHoldsUpdatesEqualPlain) {
  const auto plain = trained(/*one_region=*/false, /*checkpointed=*/false);
  for (bool one_region : {true, false}) {
    for (bool checkpointed : {true, false}) {
      const auto weights = trained(one_region, checkpointed);
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(at::equal(weights[i], plain[i])) << one_region << checkpointed << i;
      }
    }
  }
}

TEST(RecomputedCasts, RecomputeConvertsInputsOfHalfNormsAsForwardDid) {
  torch::nn::BatchNorm1d norm(6);
  norm->to(at::kBFloat16);
  const at::Tensor input = torch::randn({8, 6});
  const auto gradients = [&](bool checkpointed) {
    norm->zero_grad();
    const at::Tensor x = input.clone().requires_grad_();
    at::Tensor y;
    {
      const amp::Autocast region(c10::kCPU, at::kBFloat16);
      y = checkpointed ? checkpoint(norm, x) : norm(x);
    }
    y.to(at::kFloat).square().sum().backward();  // outside the region
    return std::vector<at::Tensor>{x.grad(), norm->weight.grad().clone(),
                                   norm->bias.grad().clone()};
  };
  const auto plain = gradients(false);
  const auto again = gradients(true);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(at::equal(plain[i], again[i])) << i;
  }
}

}  // namespace
}  // namespace lockstep
