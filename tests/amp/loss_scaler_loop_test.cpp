// A hand-written loop: any torch::optim optimizer, torch.amp.GradScaler's order of calls.
#include "spans.h"
#include "test_device.h"
#include "test_names.h"

#include <lockstep/amp/autocast.h>
#include <lockstep/amp/loss_scaler.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

using amp::LossScaler;
using amp::LossScalerOptions;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

at::Tensor leaf(const at::Tensor& value) {
  return value.clone().requires_grad_(true);
}

torch::optim::SGD sgd(const at::Tensor& parameter, double rate = 0.5) {
  return torch::optim::SGD(std::vector<at::Tensor>{parameter}, torch::optim::SGDOptions(rate));
}

at::Tensor loss_of(const at::Tensor& weight, float factor = 1.0F) {
  return (weight * weight).sum() * factor;
}

LossScalerOptions quick() {
  return LossScalerOptions::torch().init_scale(128).growth_interval(1);
}

TEST(HandWrittenLoops, AWrongOrderSaysWhichCallComesFirst) {
  const auto weight = leaf(ones({3}));
  auto optimizer = sgd(weight);
  LossScaler scaler(quick(), device());
  expect_error([&] { scaler.update(); }, "call scale(loss).backward() and step(optimizer) first");
  expect_error([&] { scaler.step(optimizer); }, "no loss was scaled");
  scaler.scale(loss_of(weight)).backward();
  expect_error([&] { scaler.update(); }, "call step(optimizer) first");
  scaler.unscale_(optimizer);
  expect_error([&] { scaler.unscale_(optimizer); }, "unscaled already");
  EXPECT_TRUE(scaler.step(optimizer));
  expect_error([&] { scaler.step(optimizer); }, "call update() before the next step()");
  expect_error([&] { scaler.unscale_(optimizer); }, "stepped already");
  expect_error([&] { scaler.backward(loss_of(weight), optimizer); }, "stepped already");
  scaler.update();
  EXPECT_EQ(scaler.value(), 256);
}

TEST(HandWrittenLoops, AStepWithoutGradientsIsAnError) {
  const auto weight = leaf(ones({3}));
  const auto other = leaf(ones({3}));
  auto optimizer = sgd(other);
  LossScaler scaler(quick(), device());
  scaler.scale(loss_of(weight)).backward();
  expect_error([&] { scaler.step(optimizer); }, "no parameter of the optimizer has a gradient");
}

TEST(HandWrittenLoops, OptimizersThatRunClosuresAreRefused) {
  const auto weight = leaf(ones({3}));
  torch::optim::LBFGS optimizer(std::vector<at::Tensor>{weight});
  LossScaler scaler(quick(), device());
  scaler.scale(loss_of(weight)).backward();
  expect_error([&] { scaler.step(optimizer); }, "LBFGS evaluates a closure several times");
}

TEST(HandWrittenLoops, HalfGradientsAreRefusedRatherThanUnscaledInHalf) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const auto weight = leaf(ones({3}, dtype));
    auto optimizer = sgd(weight);
    LossScaler scaler(quick(), device());
    scaler.scale((weight * weight).sum()).backward();
    expect_error([&] { scaler.step(optimizer); }, "keep fp32 weights");
    expect_error([&] { scaler.unscale_(optimizer); }, "Precision::O2()");
  }
  // What unscaling in half would do: the gradient is there, scaled, and gone after.
  const auto scaled = full({}, 1e-8 * 65536, at::kHalf);
  EXPECT_GT(scaled.item<float>(), 0.0F);
  EXPECT_EQ((scaled / 65536.0).item<float>(), 0.0F);
}

TEST(HandWrittenLoops, DoubleGradientsAreRefused) {
  const auto weight = leaf(ones({3}, at::kDouble));
  auto optimizer = sgd(weight);
  LossScaler scaler(quick(), device());
  scaler.scale(loss_of(weight)).backward();
  expect_error([&] { scaler.step(optimizer); }, "Double gradients");
}

TEST(LossScalerLoop, AnErrorLeavesTheRoundUsable) {
  const auto weight = leaf(ones({3}));
  auto optimizer = sgd(weight);
  LossScaler scaler(quick(), device());
  scaler.scale(loss_of(weight)).backward();
  expect_error([&] { scaler.update(); }, "step(optimizer)");
  EXPECT_TRUE(scaler.step(optimizer));
  EXPECT_NO_THROW(scaler.update());
}

TEST(LossScalerLoop, StateOfADisabledScalerIsRefusedByAnEnabledOne) {
  LossScaler disabled(LossScalerOptions::disabled(), device());
  LossScaler enabled(quick(), device());
  expect_error([&] { enabled.load(disabled.state()); }, "comes from a disabled scaler");
  EXPECT_NO_THROW(disabled.load(enabled.state()));
  EXPECT_EQ(disabled.value(), 1);
}

/// Three steps of AdamW with or without a scaler.
at::Tensor trained(const LossScalerOptions& options, bool with_scaler, double clip) {
  at::manual_seed(3);
  torch::nn::Linear model(5, 2);
  model->to(device());
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.1));
  LossScaler scaler(options, device());
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    const auto loss = model->forward(randn({4, 5})).square().mean();
    if (with_scaler) {
      scaler.scale(loss).backward();
      scaler.unscale_(optimizer);
    } else {
      loss.backward();
    }
    for (const at::Tensor& parameter : model->parameters()) {
      parameter.grad().clamp_(-clip, clip);
    }
    if (with_scaler) {
      EXPECT_TRUE(scaler.step(optimizer));
      scaler.update();
    } else {
      optimizer.step();
    }
  }
  return model->weight.detach().clone();
}

TEST(LossScalerLoop, AScaledRunHasTheBitsOfAPlainOne) {
  const auto plain = trained({}, false, 0.01);
  EXPECT_TRUE(at::equal(trained(LossScalerOptions::torch(), true, 0.01), plain));
}

TEST(HandWrittenLoops, ADisabledScalerIsPlainTraining) {
  EXPECT_TRUE(
      at::equal(trained(LossScalerOptions::disabled(), true, 0.01), trained({}, false, 0.01)));
  const auto weight = leaf(ones({3}));
  auto optimizer = sgd(weight);
  LossScaler scaler(LossScalerOptions::disabled(), device());
  scaler.scale(loss_of(weight, kInfinity)).backward();
  EXPECT_TRUE(scaler.step(optimizer)) << "a disabled scaler skips nothing";
}

TEST(HandWrittenLoops, UnscalingWithinAWindowMixesScales) {
  const auto weight = leaf(full({3}, 2.0));
  auto optimizer = sgd(weight);
  // Naive: unscale after the first of two micro-batches, as torch's raw operator lets one do.
  at::Tensor found = zeros({});
  (loss_of(weight) / 2 * 128).backward();
  std::vector<at::Tensor> gradients{weight.grad()};
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, full({}, 1.0 / 128));
  (loss_of(weight) / 2 * 128).backward();
  EXPECT_FALSE(at::allclose(weight.grad() / 128, full({3}, 4.0)));
  // Here a window has one scale and is unscaled once; a second time is refused.
  LossScaler scaler(quick(), device());
  optimizer.zero_grad();
  scaler.scale(loss_of(weight) / 2).backward();
  scaler.scale(loss_of(weight) / 2).backward();
  scaler.unscale_(optimizer);
  EXPECT_TRUE(at::equal(weight.grad(), full({3}, 4.0)));
}

TEST(HandWrittenLoops, AnInfInOneMicroBatchPoisonsTheWindow) {
  for (int bad = 0; bad < 3; ++bad) {
    const auto weight = leaf(ones({3}));
    auto optimizer = sgd(weight);
    LossScaler scaler(quick(), device());
    for (int k = 0; k < 3; ++k) {
      scaler.scale(loss_of(weight, k == bad ? kInfinity : 1.0F) / 3).backward();
    }
    EXPECT_FALSE(scaler.step(optimizer));
    scaler.update();
    EXPECT_EQ(scaler.value(), 64);
    EXPECT_TRUE(at::equal(weight, ones({3})));
  }
}

TEST(HandWrittenLoops, OnlyTheOptimizerThatOverflowedSkips) {
  const auto a = leaf(ones({3}));
  const auto b = leaf(ones({3}));
  auto first = sgd(a);
  auto second = sgd(b);
  LossScaler scaler(quick(), device());
  scaler.scale(loss_of(a, kInfinity) + loss_of(b)).backward();
  EXPECT_FALSE(scaler.step(first));
  EXPECT_TRUE(scaler.step(second));
  scaler.update();
  EXPECT_EQ(scaler.value(), 64) << "one back-off for both";
  EXPECT_TRUE(at::equal(a, ones({3})));
  EXPECT_TRUE(at::equal(b, zeros({3})));
}

TEST(LossScalerLoop, LossesWithTheirOwnScalersSkipByThemselves) {
  const auto a = leaf(ones({3}));
  const auto b = leaf(ones({3}));
  auto generator = sgd(a);
  auto critic = sgd(b);
  LossScaler ours(quick().init_scale(1024), device());
  LossScaler theirs(quick(), device());
  ours.scale(loss_of(a, kInfinity)).backward();
  EXPECT_FALSE(ours.step(generator));
  ours.update();
  theirs.scale(loss_of(b)).backward();
  EXPECT_TRUE(theirs.step(critic));
  theirs.update();
  EXPECT_EQ(ours.value(), 512);
  EXPECT_EQ(theirs.value(), 256);
}

TEST(LossScalerLoop, TwoLossesOnOneOptimizerAddTheirUnscaledGradients) {
  const auto weight = leaf(tensor({1.0F, -2.0F, 3.0F}));
  auto optimizer = sgd(weight);
  LossScaler first(quick().init_scale(1024), device());
  LossScaler second(quick().init_scale(8), device());
  first.backward(loss_of(weight), optimizer);
  second.backward(loss_of(weight, 3.0F), optimizer);
  first.backward(loss_of(weight), optimizer);  // a second micro-batch
  EXPECT_TRUE(at::equal(weight.grad(), 10.0 * weight.detach()));
}

TEST(LossScalerLoop, OnlyTheLossThatOverflowedBacksOff) {
  const auto weight = leaf(ones({3}));
  auto optimizer = sgd(weight);
  LossScaler first(quick(), device());
  LossScaler second(quick(), device());
  first.backward(loss_of(weight, kInfinity), optimizer);
  second.backward(loss_of(weight), optimizer);
  EXPECT_FALSE(LossScaler::step_with(optimizer, {&first, &second}));
  first.update();
  second.update();
  EXPECT_EQ(first.value(), 64);
  EXPECT_EQ(second.value(), 256);
  EXPECT_TRUE(at::equal(weight, ones({3})));
}

/// Mean square of the error plus the norm of its gradient, unscaled by `unscale`.
template <typename Scale, typename Unscale>
at::Tensor with_penalty(const at::Tensor& weight, const Scale& scale, const Unscale& unscale) {
  const auto loss = (weight * weight * weight).sum();
  const auto gradients =
      torch::autograd::grad({scale(loss)}, {weight}, {}, std::nullopt, /*create_graph=*/true);
  return loss + unscale(gradients)[0].square().sum().sqrt();
}

TEST(HandWrittenLoops, AGradientPenaltyHasTheGradientsOfAnUnscaledRun) {
  const auto control = leaf(tensor({1.0F, -2.0F, 3.0F}));
  const auto same = [](const auto& x) { return x; };
  with_penalty(control, same, same).backward();

  const auto weight = leaf(control.detach());
  auto optimizer = sgd(weight);
  LossScaler scaler(LossScalerOptions::torch(), device());
  const auto loss = with_penalty(
      weight, [&](const at::Tensor& l) { return scaler.scale(l); },
      [&](const std::vector<at::Tensor>& g) { return scaler.unscaled(g); });
  scaler.scale(loss).backward();
  scaler.unscale_(optimizer);
  EXPECT_TRUE(at::allclose(weight.grad(), control.grad(), 1e-6));
  // The penalty of gradients that are still scaled is another number altogether.
  const auto naive = with_penalty(
      weight, [&](const at::Tensor& l) { return scaler.scale(l); }, same);
  EXPECT_GT(naive.item<float>(), 1000 * loss.item<float>());
}

TEST(HandWrittenLoops, DuplicateSparseEntriesOverflowInTheirSum) {
  const float large = std::ldexp(1.5F, 127);
  for (const float value : {large, 1.0F}) {
    const auto weight = leaf(ones({4, 2}));
    auto optimizer = sgd(weight);
    const auto index = at::tensor({1, 1}, at::kLong).view({1, 2}).to(device());
    LossScaler scaler(LossScalerOptions::fixed(1), device());
    scaler.scale(loss_of(weight)).backward();
    weight.mutable_grad() =
        at::sparse_coo_tensor(index, full({2, 2}, value), {4, 2}, testing::on_device());
    EXPECT_EQ(scaler.step(optimizer), value == 1.0F);
  }
}

}  // namespace
}  // namespace lockstep
