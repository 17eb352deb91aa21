// How often autocast casts a weight: once for each graph, also where a layer transposes it.
#include "test_device.h"
#include "test_names.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/impl/kept_fp32.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <cstring>
#include <memory>

namespace lockstep {
namespace {

std::atomic<int> casts{0};

/// Counts casts while it lives.
class CastCounter {
 public:
  CastCounter() {
    casts = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function)
                                       -> std::unique_ptr<at::ObserverContext> {
          casts += std::strcmp(function.name(), "aten::_to_copy") == 0 ? 1 : 0;
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~CastCounter() { at::removeCallback(handle_); }
  int count() const { return casts; }

 private:
  at::CallbackHandle handle_;
};

struct Layer {
  Layer() {
    linear->to(device());
    at::autocast::set_autocast_dtype(device().type(), at::kBFloat16);
  }
  torch::nn::Linear linear{torch::nn::LinearOptions(6, 6)};
  at::Tensor x = randn({3, 6}).to(at::kBFloat16);
  amp::WeightSet weights{linear->weight.unsafeGetTensorImpl(), linear->bias.unsafeGetTensorImpl()};
  /// `uses` times one after the other.
  at::Tensor forward(int uses) {
    at::Tensor y = x;
    for (int i = 0; i < uses; ++i) {
      y = linear(y);
    }
    return y;
  }
};

TEST(WeightCasts, OnceARegionHoweverOftenALinearIsUsed) {
  Layer layer;
  const CastCounter counter;
  const amp::Autocast autocast(device().type(), at::kBFloat16);
  layer.forward(5);
  EXPECT_EQ(counter.count(), 2);  // weight and bias
}

TEST(WeightCasts, LibTorchAloneCastsALinearsWeightOnEveryUse) {
  Layer layer;
  const CastCounter counter;
  at::autocast::set_autocast_enabled(device().type(), true);
  at::autocast::increment_nesting();
  layer.forward(5);
  at::autocast::decrement_nesting();
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device().type(), false);
  EXPECT_EQ(counter.count(), 6);  // five times the weight, once the bias
}

TEST(WeightCasts, ForwardAndGradientsOfOneUseAreThoseOfLibTorch) {
  Layer layer;
  const auto run = [&](bool ours) {
    layer.linear->zero_grad();
    at::Tensor y;
    if (ours) {
      const amp::Autocast autocast(device().type(), at::kBFloat16);
      y = layer.forward(1);
    } else {
      at::autocast::set_autocast_enabled(device().type(), true);
      y = layer.forward(1);
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(device().type(), false);
    }
    y.to(at::kFloat).square().sum().backward();
    return at::cat({y.to(at::kFloat).detach().reshape({-1}),
                    layer.linear->weight.grad().reshape({-1}), layer.linear->bias.grad()});
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

TEST(WeightCasts, RegionsInAScopeShareThemAndSoDoTheirBackwards) {
  Layer layer;
  {
    const amp::WeightCastScope scope(layer.weights);
    const CastCounter counter;
    for (int i = 0; i < 3; ++i) {
      at::Tensor y;
      {
        const amp::Autocast autocast(device().type(), at::kBFloat16);
        y = layer.forward(1);
      }
      y.sum().backward();
    }
    EXPECT_EQ(counter.count(), 2 + 3 * 2);  // in backward the gradients are widened
  }
  const at::Tensor shared = layer.linear->weight.grad().clone();
  layer.linear->zero_grad();
  for (int i = 0; i < 3; ++i) {
    const amp::Autocast autocast(device().type(), at::kBFloat16);
    layer.forward(1).sum().backward();
  }
  EXPECT_TRUE(at::equal(layer.linear->weight.grad(), shared));
}

TEST(WeightCasts, AfterAScopeNewWeightsAreSeen) {
  Layer layer;
  const auto first = [&] {
    const amp::WeightCastScope scope(layer.weights);
    const amp::Autocast autocast(device().type(), at::kBFloat16);
    return layer.forward(1);
  };
  const at::Tensor before = first();
  {
    const at::NoGradGuard no_grad;
    layer.linear->weight.zero_();
    layer.linear->bias.fill_(1.0);
  }
  EXPECT_TRUE(at::equal(first(), ones({3, 6}, at::kBFloat16)));
  EXPECT_FALSE(at::equal(before, first()));
}

/// What `scope` keeps and what it does not: a forward, and its backward, then `write`.
template <typename Write>
at::Tensor after(Layer& layer, const amp::WeightSet& kept, const Write& write) {
  const amp::WeightCastScope scope(kept);
  const auto forward = [&] {
    const amp::Autocast autocast(device().type(), at::kBFloat16);
    return layer.forward(1);
  };
  forward().sum().backward();
  write(layer.linear->weight);
  write(layer.linear->bias);
  return forward();
}

TEST(WeightCasts, AScopeSeesWhatOthersWriteIntoItsWeights) {
  Layer layer;
  EXPECT_TRUE(at::equal(after(layer, layer.weights,
                              [](const at::Tensor& weight) {
                                const at::NoGradGuard no_grad;
                                weight.zero_();
                              }),
                        at::zeros({3, 6}, layer.x.options())));
}

TEST(WeightCasts, AScopeKeepsNoCastOfOtherWeightsBeyondBackward) {
  Layer layer;
  EXPECT_TRUE(at::equal(after(layer, {}, [](const at::Tensor& weight) { weight.data().zero_(); }),
                        at::zeros({3, 6}, layer.x.options())));
}

TEST(WeightCasts, OtherTransposesAreLeftAlone) {
  const amp::Autocast autocast(device().type(), at::kBFloat16);
  EXPECT_EQ(randn({2, 3}).t().scalar_type(), at::kFloat);  // no parameter
  const at::Tensor twice = randn({2, 3}).to(at::kDouble).requires_grad_();
  EXPECT_EQ(twice.t().scalar_type(), at::kDouble);
  const at::Tensor kept = randn({2, 3}).requires_grad_();
  amp::compute_in_fp32(kept);
  EXPECT_EQ(kept.t().scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace lockstep
