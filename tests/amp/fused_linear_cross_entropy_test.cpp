// A linear layer and its cross-entropy in one, against LibTorch's two.
#include "spans.h"
#include "test_device.h"
#include "test_names.h"

#include <lockstep/amp/autocast.h>
#include <lockstep/amp/fused_layers.h>
#include <lockstep/amp/impl/kept_fp32.h>
#include <lockstep/amp/layers/class_block.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

namespace lockstep {
namespace {

using torch::autograd::variable_list;

/// A head of three blocks of classes, the last one not full, with rows that do not count.
struct Head {
  explicit Head(int64_t classes = 5000, int64_t rows = 12, int64_t width = 24)
      : x((randn({rows, width}) * 0.5).requires_grad_(true)),
        weight(randn({classes, width}).requires_grad_(true)),
        bias(randn({classes}).requires_grad_(true)),
        targets(at::randint(classes, {rows}, on_device(at::kLong))) {
    targets[0] = classes - 1;
    targets[1] = -100;
    targets[rows - 1] = 0;
  }

  Head to(at::ScalarType dtype) const {
    Head other(*this);
    for (at::Tensor* tensor : {&other.x, &other.weight, &other.bias}) {
      *tensor = tensor->detach().to(dtype).requires_grad_(true);
    }
    return other;
  }
  variable_list leaves() const { return {x, weight, bias}; }
  at::Tensor fused(double smoothing = 0.0) const {
    return fused_linear_cross_entropy(x, weight, bias, targets, smoothing);
  }
  at::Tensor plain(double smoothing = 0.0) const {
    return at::cross_entropy_loss(at::linear(x, weight, bias), targets, {}, at::Reduction::Mean,
                                  -100, smoothing);
  }

  at::Tensor x, weight, bias, targets;
};

struct FusedLinearCrossEntropy : ::testing::Test {
  FusedLinearCrossEntropy() { at::manual_seed(1); }
};

TEST_F(FusedLinearCrossEntropy, HasTheValueAndTheGradientsOfTheTwoLayers) {
  const std::pair<at::ScalarType, double> tolerances[] = {
      {at::kFloat, 5e-6}, {at::kHalf, 4e-3}, {at::kBFloat16, 3e-2}};
  for (const int64_t classes : {3, 2048, 5000}) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const auto& [dtype, tolerance] : tolerances) {
        const Head head = Head(classes).to(dtype);
        const Head wide = head.to(at::kDouble);
        const auto ours = head.fused(smoothing) * 3.0;
        const auto expected = wide.plain(smoothing) * 3.0;
        EXPECT_EQ(ours.scalar_type(), at::kFloat);
        expect_close(ours, expected, tolerance);
        const auto gradients = torch::autograd::grad({ours}, head.leaves());
        const auto references = torch::autograd::grad({expected}, wide.leaves());
        for (size_t i = 0; i < gradients.size(); ++i) {
          EXPECT_EQ(gradients[i].scalar_type(), dtype);
          expect_close(gradients[i], references[i], tolerance);
        }
      }
    }
  }
}

TEST_F(FusedLinearCrossEntropy, NeedsNoBias) {
  const Head head;
  const auto ours = fused_linear_cross_entropy(head.x, head.weight, {}, head.targets);
  const auto expected = at::cross_entropy_loss(at::linear(head.x, head.weight), head.targets);
  expect_close(ours, expected, 5e-6);
  const auto gradients = torch::autograd::grad({ours}, {head.x, head.weight});
  const auto references = torch::autograd::grad({expected}, {head.x, head.weight});
  expect_close(gradients[0], references[0], 5e-6);
  expect_close(gradients[1], references[1], 5e-6);
}

TEST_F(FusedLinearCrossEntropy, GivesTheSameGradientsWhenBackwardRunsTwice) {
  const Head head;
  const auto loss = head.fused(0.1);
  const auto first = torch::autograd::grad({loss}, head.leaves(), {}, /*retain_graph=*/true);
  const auto second = torch::autograd::grad({loss}, head.leaves());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(at::equal(first[i], second[i]));
  }
}

TEST_F(FusedLinearCrossEntropy, StaysFiniteWhereTheExponentialsOverflow) {
  const auto x = (ones({2, 1}) * 1e4).requires_grad_(true);
  const auto weight = at::stack({ones({1}), ones({1}) * -1});
  const auto loss =
      fused_linear_cross_entropy(x, weight, {}, at::tensor({1, 0}, at::kLong).to(device()));
  EXPECT_NEAR(loss.item<double>(), 1e4, 1.0);
  loss.backward();
  EXPECT_TRUE(at::isfinite(x.grad()).all().item<bool>());
}

TEST_F(FusedLinearCrossEntropy, HasNaNLossIfNoRowCountsAndTellsOfNaNLogits) {
  const Head head;
  const auto none = at::full_like(head.targets, -100);
  EXPECT_TRUE(
      std::isnan(fused_linear_cross_entropy(head.x, head.weight, head.bias, none).item<double>()));
  at::Tensor spoiled = head.x.detach().clone();
  spoiled[3][2] = std::nan("");
  EXPECT_TRUE(std::isnan(
      fused_linear_cross_entropy(spoiled, head.weight, head.bias, head.targets).item<double>()));
}

TEST_F(FusedLinearCrossEntropy, MultipliesInTheDtypeOfTheAutocastRegion) {
  const Head head;
  const amp::Autocast region(device().type(), at::kBFloat16);
  const auto ours = head.fused();
  const auto expected = head.plain();
  EXPECT_EQ(ours.scalar_type(), at::kFloat);
  expect_close(ours, expected, 2e-3);
  const auto gradients = torch::autograd::grad({ours}, head.leaves());
  const auto references = torch::autograd::grad({expected}, head.leaves());
  for (size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_EQ(gradients[i].scalar_type(), at::kFloat);
    expect_close(gradients[i], references[i], 3e-2);
  }
  const Head rounded = head.to(at::kBFloat16);
  EXPECT_EQ(ours.item<float>(), rounded.fused().item<float>());
  const auto mixed = fused_linear_cross_entropy(rounded.x, head.weight, rounded.bias, head.targets);
  EXPECT_EQ(ours.item<float>(), mixed.item<float>());
}

TEST_F(FusedLinearCrossEntropy, ComputesInFp32WhatPrecisionKeepsThere) {
  const Head head;
  const float expected = head.fused().item<float>();
  amp::compute_in_fp32(head.weight);
  const amp::Autocast region(device().type(), at::kBFloat16);
  EXPECT_EQ(head.fused().item<float>(), expected);
}

TEST_F(FusedLinearCrossEntropy, KeepsOneMatrixOfLogitsWhereTheTwoLayersKeepThree) {
  const Head head(/*classes=*/20000, /*rows=*/200, /*width=*/8);
  const int64_t logits = head.targets.numel() * head.weight.size(0) * 4;
  const auto peak_of = [](const auto& loss) {
    const MemoryMeter meter;
    loss().backward();
    return meter.peak();
  };
  EXPECT_LT(peak_of([&] { return head.fused(); }), 1.4 * logits);
  EXPECT_GT(peak_of([&] { return head.plain(); }), 2.0 * logits);
}

TEST_F(FusedLinearCrossEntropy, KernelsAndLibTorchsOperatorsAgreeOnABlock) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto logits = (randn({9, 40}) * 4).to(dtype);
    const amp::BlockTargets targets{
        at::tensor({99, 100, 139, 140, -100, 105, 0, 500, 101}, at::kLong).to(device()), 100, -100};
    const auto ours = amp::sum_classes(logits, targets);
    const auto composed = amp::composed_sum_classes(logits, targets);
    expect_close(ours.log_sum_exp, composed.log_sum_exp, 1e-6);
    expect_close(ours.sum, composed.sum, 1e-5);
    EXPECT_TRUE(at::equal(ours.target, composed.target));
    const auto factor = at::rand({9}, on_device());
    const auto mine = at::empty_like(logits);
    const auto theirs = at::empty_like(logits);
    amp::slope_of_classes(mine, logits, targets, ours.log_sum_exp, factor, 0.001, 0.9);
    amp::composed_slope_of_classes(theirs, logits, targets, ours.log_sum_exp, factor, 0.001, 0.9);
    expect_close(mine, theirs, dtype == at::kFloat ? 1e-6 : 8e-3);
    EXPECT_EQ(theirs[4].abs().max().item<double>(), 0.0);
  }
}

TEST_F(FusedLinearCrossEntropy, ErrorsNameTheArgument) {
  const Head head(7);
  const auto run = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& targets, double smoothing = 0.0) {
    return [=] { fused_linear_cross_entropy(x, weight, bias, targets, smoothing); };
  };
  expect_error(run(head.x.view({-1}), head.weight, {}, head.targets), "matrix (rows, width)");
  expect_error(run({}, head.weight, {}, head.targets), "found no tensor");
  expect_error(run(head.x, head.weight.t(), {}, head.targets), "(classes, 24)");
  expect_error(run(head.x, head.weight, ones({6}), head.targets), "bias must have 7");
  expect_error(run(head.x, head.weight, ones({7}, at::kHalf), head.targets), "one dtype");
  expect_error(run(head.x, head.weight, {}, ones({3}, at::kLong)), "int64 vector of 12");
  expect_error(run(head.x, head.weight, {}, head.targets, 1.0), "label_smoothing");
  const auto no_class = at::full_like(head.targets, 7);
  if (device().is_cpu()) {
    expect_error(run(head.x, head.weight, {}, no_class), "row 0 is 7");
  } else {
    EXPECT_TRUE(
        std::isnan(fused_linear_cross_entropy(head.x, head.weight, {}, no_class).item<double>()));
  }
}

}  // namespace
}  // namespace lockstep
