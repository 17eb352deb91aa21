// Fused layers against LibTorch's own: values and gradients, every dtype.
#include "spans.h"
#include "test_device.h"
#include "test_names.h"

#include <lockstep/amp/autocast.h>
#include <lockstep/amp/fused_layers.h>
#include <lockstep/amp/layers/smooth_math.h>
#include <lockstep/amp/model.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

namespace lockstep {
namespace {

/// Fixed numbers: a sum of few of them may by chance be much smaller than its terms.
struct FusedLayers : ::testing::Test {
  FusedLayers() { at::manual_seed(1); }
};

at::Tensor leaf(const at::Tensor& value) {
  return value.detach().clone().requires_grad_(true);
}

/// The largest error allowed for a result of this dtype that was computed in fp32.
double tolerance(at::ScalarType dtype) {
  return dtype == at::kFloat ? 2e-6 : dtype == at::kHalf ? 1e-3 : 8e-3;
}

/// Ours in `dtype` against the reference in fp64, both from the same rounded input; values and
/// gradients of the input and the fp32 parameters.
template <typename Ours, typename Reference>
void expect_parity(at::IntArrayRef sizes, std::vector<at::Tensor> parameters, const Ours& ours,
                   const Reference& reference) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const auto x = leaf((randn(sizes) * 2 + 0.5).to(dtype));
    const auto wide = leaf(x.to(at::kDouble));
    const auto slope = randn(sizes).to(dtype);
    std::vector<at::Tensor> mine{x};
    std::vector<at::Tensor> theirs{wide};
    for (const at::Tensor& parameter : parameters) {
      mine.push_back(leaf(parameter));
      theirs.push_back(leaf(parameter.to(at::kDouble)));
    }
    const auto y = ours(mine);
    const auto expected = reference(theirs);
    EXPECT_EQ(y.scalar_type(), dtype);
    expect_close(y, expected, tolerance(dtype));
    const auto gradients = torch::autograd::grad({y}, mine, {slope});
    const auto references = torch::autograd::grad({expected}, theirs, {slope.to(at::kDouble)});
    for (size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(gradients[i].scalar_type(), mine[i].scalar_type());
      expect_close(gradients[i], references[i], i == 0 ? tolerance(dtype) : 5e-6);
    }
  }
}

TEST_F(FusedLayers, LayerNormHasLibTorchsValuesAndGradients) {
  for (const int64_t size : {5, 7, 64, 130}) {
    expect_parity(
        {5, 9, size}, {randn({size}), randn({size})},
        [](const auto& t) { return fused_layer_norm(t[0], t[1], t[2]); },
        [&](const auto& t) { return at::layer_norm(t[0], {size}, t[1], t[2], 1e-5); });
    if (size == 7) {
      expect_parity(
          {6, size}, {}, [](const auto& t) { return fused_layer_norm(t[0], {}, {}); },
          [&](const auto& t) { return at::layer_norm(t[0], {size}, {}, {}, 1e-5); });
    }
  }
}

TEST_F(FusedLayers, RmsNormHasLibTorchsValuesAndGradients) {
  for (const int64_t size : {7, 64, 130}) {
    expect_parity(
        {5, 9, size}, {randn({size})}, [](const auto& t) { return fused_rms_norm(t[0], t[1]); },
        [&](const auto& t) { return at::rms_norm(t[0], {size}, t[1], 1e-6); });
  }
}

TEST_F(FusedLayers, BiasGeluHasLibTorchsValuesAndGradients) {
  for (const int64_t size : {1, 33, 64}) {
    expect_parity(
        {7, size}, {randn({size})}, [](const auto& t) { return fused_bias_gelu(t[0], t[1]); },
        [](const auto& t) { return at::gelu(t[0] + t[1], "tanh"); });
  }
}

TEST_F(FusedLayers, CrossEntropyHasLibTorchsValueAndGradient) {
  const auto targets = at::tensor({0, 3, -100, 36, 5, 3}, at::kLong).to(device());
  for (const double smoothing : {0.0, 0.1}) {
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      const auto logits = leaf((randn({6, 37}) * 5).to(dtype));
      const auto wide = leaf(logits.to(at::kDouble));
      const auto ours = fused_cross_entropy(logits, targets, smoothing) * 3.0;
      const auto expected =
          at::cross_entropy_loss(wide, targets, {}, at::Reduction::Mean, -100, smoothing) * 3.0;
      EXPECT_EQ(ours.scalar_type(), at::kFloat);
      EXPECT_NEAR(ours.item<double>(), expected.item<double>(), 1e-5);
      ours.backward();
      expected.backward();
      EXPECT_EQ(logits.grad().scalar_type(), dtype);
      expect_close(logits.grad(), wide.grad(), tolerance(dtype));
    }
  }
}

TEST_F(FusedLayers, CrossEntropyStaysFiniteWhereHalfOverflows) {
  const auto logits = leaf(tensor({6e4F, -6e4F}).view({1, 2}).to(at::kHalf));
  const auto loss = fused_cross_entropy(logits, ones({1}, at::kLong));
  EXPECT_NEAR(loss.item<double>(), 120000, 100);
  loss.backward();
  EXPECT_TRUE(at::isfinite(logits.grad()).all().item<bool>());
}

TEST_F(FusedLayers, HaveTheSameBitsOnEveryInstructionSet) {
  const auto x = randn({33, 77});
  const auto weight = randn({77});
  const auto targets = at::arange(33, on_device(at::kLong));
  const auto all = [&] {
    const auto input = leaf(x);
    const auto w = leaf(weight);
    const auto y = fused_bias_gelu(fused_rms_norm(fused_layer_norm(input, w, w), w), w);
    const auto loss = fused_cross_entropy(y, targets, 0.1);
    loss.backward();
    return at::cat({loss.detach().view({1}), input.grad().view({-1}), w.grad()});
  };
  const auto expected = all();
  testing::for_each_target(
      [&](const std::string& name) { EXPECT_TRUE(at::equal(all(), expected)) << name; });
}

TEST_F(FusedLayers, ExponentialIsExactToTwoUlpAndKeepsNan) {
  for (double x = -86.0; x < 88.0; x += 0.00917) {
    const double exact = std::exp(static_cast<double>(static_cast<float>(x)));
    EXPECT_NEAR(amp::exp_of(static_cast<float>(x)) / exact, 1.0, 2.4e-7) << x;
  }
  EXPECT_TRUE(std::isnan(amp::exp_of(std::nanf(""))));
}

TEST_F(FusedLayers, LogarithmIsExactToOneUlpAndKeepsNanAndInfinity) {
  for (float x = 1.2e-38F; x < 3.3e38F; x *= 1.00317F) {
    const double exact = std::log(static_cast<double>(x));
    const auto nearest = static_cast<float>(exact);
    const double ulp = std::abs(std::nextafter(nearest, 2.0F * nearest) - nearest);
    EXPECT_NEAR(amp::log_of(x), exact, ulp) << x;
  }
  EXPECT_EQ(amp::log_of(1.0F), 0.0F);
  EXPECT_EQ(amp::log_of(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(amp::log_of(std::nanf(""))));
}

struct Block : torch::nn::Module {
  Block() : a(register_module("a", FusedLayerNorm(8))), b(register_module("b", FusedRMSNorm(8))) {}
  FusedLayerNorm a;
  FusedRMSNorm b;
};

TEST_F(FusedLayers, ModulesCountAsNormsAndKeepTheirInputsDtypeUnderAutocast) {
  Block block;
  block.to(device());
  const Model model(block);
  ASSERT_EQ(model.parameters().size(), 3U);
  for (const ModelTensor& parameter : model.parameters()) {
    EXPECT_TRUE(parameter.in_norm) << parameter.name;
  }
  const amp::Autocast region(device().type(), at::kHalf);
  const auto y = block.b->forward(block.a->forward(randn({3, 8}).to(at::kHalf)));
  EXPECT_EQ(y.scalar_type(), at::kHalf);
}

TEST_F(FusedLayers, TakeInputsWithoutElements) {
  const auto no_rows = leaf(randn({0, 4}));
  const auto weight = leaf(ones({4}));
  fused_bias_gelu(fused_layer_norm(no_rows, weight, weight), weight).sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), testing::zeros({4})));
  const auto no_columns = leaf(randn({3, 0}));
  const auto none = leaf(ones({0}));
  fused_bias_gelu(fused_rms_norm(no_columns, none), none).sum().backward();
  EXPECT_EQ(none.grad().numel(), 0);
}

TEST_F(FusedLayers, ErrorsNameTheArgument) {
  const auto x = randn({2, 4});
  expect_error([&] { fused_layer_norm(x, ones({3}), {}); }, "weight must be fp32 with 4");
  expect_error([&] { fused_layer_norm(x, {}, ones({4})); }, "a bias needs a weight");
  expect_error([&] { fused_rms_norm(x, ones({4}, at::kHalf)); }, "found Half");
  expect_error([&] { fused_rms_norm(x.to(at::kDouble), {}); }, "found Double");
  expect_error([&] { fused_bias_gelu(x, {}); }, "no bias");
  expect_error([&] { fused_cross_entropy(x, ones({3}, at::kLong)); }, "int64 vector of 2");
  const auto no_class = at::full({2}, 4, on_device(at::kLong));
  if (x.is_cpu()) {
    expect_error([&] { fused_cross_entropy(x, no_class); }, "row 0 is 4");
  } else {
    EXPECT_TRUE(std::isnan(fused_cross_entropy(x, no_class).item<double>()));
  }
  expect_error([&] { fused_cross_entropy(x, ones({2}, at::kLong), 1.0); }, "label_smoothing");
}

}  // namespace
}  // namespace lockstep
