// Norms whose weights are half take an fp32 input under autocast: they convert it.
#include "test_device.h"
#include "test_names.h"

#include <gtest/gtest.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/fused_layers.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using amp::Autocast;
namespace nn = torch::nn;

struct Case {
  std::string name;
  nn::AnyModule norm;
  at::Tensor x;
};

std::vector<Case> norms(at::ScalarType dtype) {
  const auto instance = [](auto options) { return options.affine(true).track_running_stats(true); };
  std::vector<Case> cases;
  cases.push_back({"BatchNorm1d", nn::AnyModule(nn::BatchNorm1d(6)), randn({4, 6})});
  cases.push_back({"BatchNorm2d", nn::AnyModule(nn::BatchNorm2d(6)), randn({4, 6, 3, 2})});
  cases.push_back({"BatchNorm3d", nn::AnyModule(nn::BatchNorm3d(6)), randn({4, 6, 3, 2, 2})});
  cases.push_back({"BatchNorm1d without weights",
                   nn::AnyModule(nn::BatchNorm1d(nn::BatchNorm1dOptions(6).affine(false))),
                   randn({4, 6})});
  cases.push_back(
      {"LayerNorm", nn::AnyModule(nn::LayerNorm(nn::LayerNormOptions({6}))), randn({4, 6})});
  cases.push_back({"LayerNorm of two dimensions",
                   nn::AnyModule(nn::LayerNorm(nn::LayerNormOptions({3, 6}))), randn({4, 3, 6})});
  cases.push_back({"GroupNorm", nn::AnyModule(nn::GroupNorm(2, 6)), randn({4, 6, 3})});
  cases.push_back({"InstanceNorm1d",
                   nn::AnyModule(nn::InstanceNorm1d(instance(nn::InstanceNorm1dOptions(6)))),
                   randn({4, 6, 5})});
  cases.push_back({"InstanceNorm2d",
                   nn::AnyModule(nn::InstanceNorm2d(instance(nn::InstanceNorm2dOptions(6)))),
                   randn({4, 6, 3, 2})});
  cases.push_back({"InstanceNorm3d",
                   nn::AnyModule(nn::InstanceNorm3d(instance(nn::InstanceNorm3dOptions(6)))),
                   randn({4, 6, 3, 2, 2})});
  for (Case& one : cases) {
    one.norm.ptr()->to(device(), dtype);
    for (at::Tensor& weight : one.norm.ptr()->parameters()) {
      weight.data().uniform_(0.5, 1.5);
    }
  }
  return cases;
}

struct Pass {
  at::Tensor y;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> buffers;
};

/// One forward and backward, after which the buffers are as before.
Pass run(Case& one, const at::Tensor& input) {
  std::vector<at::Tensor> before;
  for (const at::Tensor& buffer : one.norm.ptr()->buffers()) {
    before.push_back(buffer.clone());
  }
  one.norm.ptr()->zero_grad();
  const at::Tensor x = input.detach().requires_grad_();
  Pass found;
  {
    const Autocast region(device().type(), at::kHalf);
    found.y = one.norm.forward<at::Tensor>(x);
  }
  (found.y.to(at::kFloat) *
   at::arange(found.y.numel(), x.options().dtype(at::kFloat).requires_grad(false))
       .reshape(found.y.sizes()))
      .sum()
      .backward();
  found.gradients.push_back(x.grad().to(at::kFloat));
  for (const at::Tensor& weight : one.norm.ptr()->parameters()) {
    found.gradients.push_back(weight.grad().clone());
  }
  const std::vector<at::Tensor> buffers = one.norm.ptr()->buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    found.buffers.push_back(buffers[i].clone());
    buffers[i].copy_(before[i]);
  }
  return found;
}

void expect_alike(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i], b[i])) << i;
  }
}

TEST(NormInputs, NormsOfHalfWeightsConvertAnFp32Input) {
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (Case& one : norms(dtype)) {
      for (bool training : {true, false}) {
        SCOPED_TRACE(one.name + (training ? " in training" : " in evaluation"));
        one.norm.ptr()->train(training);
        const Pass wide = run(one, one.x);
        const Pass half = run(one, one.x.to(dtype));
        EXPECT_TRUE(at::equal(wide.y, half.y));
        EXPECT_EQ(wide.y.scalar_type(), dtype);
        EXPECT_TRUE(wide.y.isfinite().all().item<bool>());
        expect_alike(wide.gradients, half.gradients);
        expect_alike(wide.buffers, half.buffers);
      }
    }
  }
}

TEST(NormInputs, NormsOfFp32WeightsTakeInputsAsTheyAre) {
  for (Case& one : norms(at::kFloat)) {
    SCOPED_TRACE(one.name);
    const Autocast region(device().type(), at::kBFloat16);
    EXPECT_EQ(one.norm.forward<at::Tensor>(one.x).scalar_type(), at::kFloat);
  }
}

TEST(NormInputs, FusedNormsStandInASequential) {
  nn::Sequential net(FusedLayerNorm(6), nn::Linear(6, 4), FusedRMSNorm(4));
  net->to(device());
  const at::Tensor x = randn({3, 6});
  const at::Tensor y = net->forward(x);
  const auto named = net->named_parameters();
  EXPECT_TRUE(at::equal(
      y, fused_rms_norm(at::linear(fused_layer_norm(x, named["0.weight"], named["0.bias"]),
                                   named["1.weight"], named["1.bias"]),
                        named["2.weight"])));
  y.sum().backward();
  EXPECT_TRUE(named["0.weight"].grad().defined());
}

}  // namespace
}  // namespace lockstep
