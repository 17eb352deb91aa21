// What a Model makes of members that a program assigned: a->weight = b->weight.
#include <gmock/gmock.h>
#include <lockstep/amp/fused_layers.h>
#include <lockstep/amp/model.h>
#include <torch/nn.h>

#include "test_names.h"

namespace lockstep {
namespace {

/// Two modules under the names "first" and "second".
template <typename First, typename Second>
struct TwoModules : torch::nn::Module {
  TwoModules(const First& first, const Second& second) {
    register_module("first", first);
    register_module("second", second);
  }
};

template <typename First, typename Second>
Model both(const First& first, const Second& second) {
  return Model(std::make_shared<TwoModules<First, Second>>(first, second));
}

/// Ties the member of two modules that `make` makes, and looks for both names of one tensor.
template <typename Make, typename Module>
void expect_tied(const Make& make, at::Tensor Module::*member, const std::string& name) {
  auto first = make();
  auto second = make();
  (*second).*member = (*first).*member;
  const Model model = both(first, second);
  for (const ModelTensor& entry : model.parameters()) {
    EXPECT_NE(entry.name, "second." + name);
    if (entry.name == "first." + name) {
      EXPECT_THAT(entry.aliases, ElementsAre("second." + name));
      EXPECT_TRUE(entry.tensor.is_same((*first).*member));
      ASSERT_EQ(entry.replaced.size(), 1U);
      EXPECT_FALSE(entry.replaced[0].is_same(entry.tensor));
      show_ties(model);
      EXPECT_TRUE(entry.replaced[0].is_alias_of(entry.tensor));
      EXPECT_TRUE(entry.replaced[0].is_same(second->named_parameters(/*recurse=*/false)[name]));
      return;
    }
  }
  ADD_FAILURE() << "first." << name << " is not there";
}

template <typename Impl, typename Make>
void expect_weight_and_bias(const Make& make) {
  expect_tied<Make, Impl>(make, &Impl::weight, "weight");
  expect_tied<Make, Impl>(make, &Impl::bias, "bias");
}

TEST(TiedWeights, MembersOfEveryModuleMayBeTied) {
  using namespace torch::nn;  // NOLINT(google-build-using-namespace): the names of its layers
  expect_weight_and_bias<LinearImpl>([] { return Linear(2, 3); });
  expect_weight_and_bias<BilinearImpl>([] { return Bilinear(2, 3, 4); });
  expect_weight_and_bias<Conv1dImpl>([] { return Conv1d(2, 3, 1); });
  expect_weight_and_bias<Conv2dImpl>([] { return Conv2d(2, 3, 1); });
  expect_weight_and_bias<Conv3dImpl>([] { return Conv3d(2, 3, 1); });
  expect_weight_and_bias<ConvTranspose1dImpl>([] { return ConvTranspose1d(2, 3, 1); });
  expect_weight_and_bias<ConvTranspose2dImpl>([] { return ConvTranspose2d(2, 3, 1); });
  expect_weight_and_bias<ConvTranspose3dImpl>([] { return ConvTranspose3d(2, 3, 1); });
  expect_weight_and_bias<BatchNorm1dImpl>([] { return BatchNorm1d(2); });
  expect_weight_and_bias<BatchNorm2dImpl>([] { return BatchNorm2d(2); });
  expect_weight_and_bias<BatchNorm3dImpl>([] { return BatchNorm3d(2); });
  const auto affine = InstanceNormOptions(2).affine(true);
  expect_weight_and_bias<InstanceNorm1dImpl>([&] { return InstanceNorm1d(affine); });
  expect_weight_and_bias<InstanceNorm2dImpl>([&] { return InstanceNorm2d(affine); });
  expect_weight_and_bias<InstanceNorm3dImpl>([&] { return InstanceNorm3d(affine); });
  expect_weight_and_bias<LayerNormImpl>([] { return LayerNorm(LayerNormOptions({2})); });
  expect_weight_and_bias<GroupNormImpl>([] { return GroupNorm(1, 2); });
  expect_weight_and_bias<FusedLayerNormImpl>([] { return FusedLayerNorm(2); });
  expect_tied([] { return FusedRMSNorm(2); }, &FusedRMSNormImpl::weight, "weight");
  expect_tied([] { return Embedding(3, 2); }, &EmbeddingImpl::weight, "weight");
  expect_tied([] { return EmbeddingBag(3, 2); }, &EmbeddingBagImpl::weight, "weight");
  expect_tied([] { return PReLU(); }, &PReLUImpl::weight, "weight");
  const auto cell = [] { return GRUCell(2, 2); };
  expect_tied(cell, &GRUCellImpl::weight_ih, "weight_ih");
  expect_tied(cell, &GRUCellImpl::weight_hh, "weight_hh");
  expect_tied(cell, &GRUCellImpl::bias_ih, "bias_ih");
  expect_tied(cell, &GRUCellImpl::bias_hh, "bias_hh");
  expect_tied([] { return RNNCell(2, 2); }, &RNNCellImpl::weight_hh, "weight_hh");
  expect_tied([] { return LSTMCell(2, 2); }, &LSTMCellImpl::weight_hh, "weight_hh");
  const auto attention = [] { return MultiheadAttention(2, 1); };
  expect_tied(attention, &MultiheadAttentionImpl::in_proj_weight, "in_proj_weight");
  expect_tied(attention, &MultiheadAttentionImpl::in_proj_bias, "in_proj_bias");
}

TEST(TiedWeights, DifferentModulesAndFrozenWeightsMayBeTied) {
  torch::nn::Embedding encoder(5, 3);
  torch::nn::Linear decoder(3, 5);
  decoder->weight = encoder->weight;
  encoder->weight.set_requires_grad(false);
  const Model model = both(encoder, decoder);
  ASSERT_EQ(model.parameters().size(), 2U);
  EXPECT_THAT(model.parameters()[0].aliases, ElementsAre("second.weight"));
  EXPECT_FALSE(model.parameters()[0].tensor.requires_grad());
  EXPECT_EQ(model.parameters()[1].name, "second.bias");
}

TEST(TiedWeights, AWeightThatAForwardComputesIsNoParameter) {
  torch::nn::Linear linear(3, 3);
  const at::Tensor registered = linear->weight;
  linear->weight = registered / registered.norm();  // weight norm
  EXPECT_TRUE(Model(linear).parameters()[0].tensor.is_same(registered));
  linear->weight = (registered / registered.norm()).detach();
  EXPECT_TRUE(Model(linear).parameters()[0].tensor.is_same(registered));
  linear->weight = at::Tensor();
  EXPECT_TRUE(Model(linear).parameters()[0].tensor.is_same(registered));
}

}  // namespace
}  // namespace lockstep
