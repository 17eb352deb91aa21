#include "spans.h"

#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizers.h>

#include <limits>

namespace lockstep {
namespace {

using testing::expect_error;

ModelTensor parameter(const std::string& name, bool in_norm = false) {
  return {name, {}, at::ones({2}), in_norm};
}

bool is_head(const ModelTensor& p) {
  return p.name.rfind("head.", 0) == 0;
}
bool is_weight(const ModelTensor& p) {
  return p.name.find("weight") != std::string::npos;
}

/// The weight after one update with gradient 1.
float after_update(const OptimizerSpec& spec, int group, float weight) {
  const auto rule = spec.rule(group);
  amp::FlatSpan span;
  span.gradient = at::zeros({1});
  span.master = at::full({1}, weight);
  for (int i = 0; i < rule->moments(); ++i) {
    span.moments.push_back(at::zeros({1}));
  }
  const amp::StepState state;
  rule->apply(span, &state);
  return span.master.item<float>();
}

TEST(Optimizers, DefaultsAreTorchs) {
  EXPECT_EQ(AdamW().lr(), 1e-3);
  EXPECT_EQ(AdamW().weight_decay(), 1e-2);
  EXPECT_EQ(Adam().weight_decay(), 0.0);
  EXPECT_EQ(Adam().beta1(), 0.9);
  EXPECT_EQ(Adam().beta2(), 0.999);
  EXPECT_EQ(Adam().eps(), 1e-8);
  EXPECT_EQ(SGD(0.1).momentum(), 0.0);
  EXPECT_FALSE(SGD(0.1).nesterov());
  EXPECT_EQ(LAMB().eps(), 1e-6);  // Apex's
  EXPECT_EQ(Lion().lr(), 1e-4);   // the paper's
  EXPECT_EQ(Lion().beta2(), 0.99);
}

TEST(Optimizers, MomentsAreThoseTheFormulaNeeds) {
  EXPECT_EQ(AdamW().rule(0)->moments(), 2);
  EXPECT_EQ(Adam().rule(0)->moments(), 2);
  EXPECT_EQ(SGD(0.1).rule(0)->moments(), 0);
  EXPECT_EQ(SGD(0.1).momentum(0.9).rule(0)->moments(), 1);
  EXPECT_EQ(LAMB().rule(0)->moments(), 2);
  EXPECT_EQ(Lion().rule(0)->moments(), 1);
}

TEST(Optimizers, MomentFormatsBelongToTheirGroup) {
  const auto spec = AdamW().group(is_head, AdamW().moments(MomentFormat::bf16));
  EXPECT_EQ(spec.rule(0)->moment_format(), MomentFormat::fp32);
  EXPECT_EQ(spec.rule(1)->moment_format(), MomentFormat::bf16);
}

TEST(Optimizers, DescribeThemselves) {
  EXPECT_EQ(AdamW(3e-4).weight_decay(0.1).describe(), "AdamW lr 0.0003 weight_decay 0.1, 1 group");
  EXPECT_EQ(Adam().no_decay_on_norms_and_biases().describe(),
            "Adam lr 0.001 weight_decay 0, 2 groups");
  EXPECT_EQ(SGD(0.1).momentum(0.9).describe(), "SGD lr 0.1 momentum 0.9 weight_decay 0, 1 group");
  EXPECT_EQ(Lion().moments(MomentFormat::bf16).describe(),
            "Lion lr 0.0001 weight_decay 0 moments bf16, 1 group");
}

TEST(Optimizers, TheLastGroupThatMatchesWins) {
  const auto spec = AdamW(1.0).group(is_head, AdamW(2.0)).group(is_weight, AdamW(3.0));
  EXPECT_EQ(spec.groups(), 3);
  EXPECT_EQ(spec.group_of(parameter("body.bias")), 0);
  EXPECT_EQ(spec.group_of(parameter("head.bias")), 1);
  EXPECT_EQ(spec.group_of(parameter("body.weight")), 2);
  EXPECT_EQ(spec.group_of(parameter("head.weight")), 2);
  EXPECT_EQ(spec.learning_rate(0), 1.0);
  EXPECT_EQ(spec.learning_rate(1), 2.0);
  EXPECT_EQ(spec.learning_rate(2), 3.0);
}

TEST(Optimizers, EachGroupHasItsOwnRule) {
  const auto spec = SGD(0.5).weight_decay(1.0).group(is_head, SGD(0.25).weight_decay(1.0));
  EXPECT_EQ(after_update(spec, 0, 1.0F), 0.5F);
  EXPECT_EQ(after_update(spec, 1, 1.0F), 0.75F);
}

TEST(Optimizers, AGroupThatDoesNotExistIsRefused) {
  expect_error([] { AdamW().rule(1); }, "no group 1");
  expect_error([] { SGD(1).learning_rate(-1); }, "no group -1");
}

TEST(Optimizers, NormsAndBiasesAreNotDecayed) {
  const auto adamw = AdamW(0.1).beta1(0.8).weight_decay(0.5).no_decay_on_norms_and_biases();
  EXPECT_EQ(after_update(adamw, 0, 1.0F), 0.95F);
  EXPECT_EQ(after_update(adamw, 1, 1.0F), 1.0F);
  EXPECT_EQ(adamw.learning_rate(1), 0.1);
  const auto sgd = SGD(0.1).momentum(0.9).weight_decay(0.5).no_decay_on_norms_and_biases();
  EXPECT_EQ(after_update(sgd, 1, 1.0F), 1.0F);
  EXPECT_EQ(sgd.rule(1)->moments(), 1);
  EXPECT_EQ(after_update(Adam(0.1).weight_decay(0.5).no_decay_on_norms_and_biases(), 1, 1.0F),
            1.0F);
}

TEST(Optimizers, NormsAndBiasesTakeOptionsSetAfterTheirGroup) {
  auto spec = SGD(0.5).weight_decay(1.0).no_decay_on_norms_and_biases();
  spec.group(is_head, SGD(0.25)).lr(0.125).momentum(0.5).moments(MomentFormat::bf16);
  const auto copy = spec.clone();
  spec.lr(1.0).momentum(0.0).moments(MomentFormat::fp32);
  EXPECT_EQ(copy->group_of(parameter("body.bias")), 1);
  EXPECT_EQ(copy->group_of(parameter("head.bias")), 2);
  EXPECT_EQ(copy->learning_rate(1), 0.125);
  EXPECT_EQ(copy->rule(1)->moments(), 1);
  EXPECT_EQ(copy->rule(1)->moment_format(), MomentFormat::bf16);
  EXPECT_EQ(copy->learning_rate(2), 0.25);
  EXPECT_EQ(copy->rule(2)->moments(), 0);
  EXPECT_EQ(spec.learning_rate(1), 1.0);
  EXPECT_EQ(after_update(spec, 0, 1.0F), 0.0F);
  EXPECT_EQ(after_update(spec, 1, 1.0F), 1.0F);
  EXPECT_NO_THROW(spec.weight_decay(2.0).validate());
  EXPECT_EQ(after_update(spec, 0, 1.0F), -1.0F);
  EXPECT_EQ(after_update(spec, 1, 1.0F), 1.0F);
}

TEST(Optimizers, NormOrBiasReadsTheLastPartOfTheName) {
  EXPECT_TRUE(is_norm_or_bias(parameter("bn.weight", /*in_norm=*/true)));
  for (const char* name : {"bias", "fc.bias", "lstm.bias_ih_l0", "attention.in_proj_bias"}) {
    EXPECT_TRUE(is_norm_or_bias(parameter(name))) << name;
  }
  for (const char* name : {"fc.weight", "bias_net.weight", "unbiased", "debias.scale"}) {
    EXPECT_FALSE(is_norm_or_bias(parameter(name))) << name;
  }
}

TEST(Optimizers, CloneKeepsOptionsAndGroups) {
  const auto spec = AdamW(0.25).weight_decay(0.5).group(is_head, AdamW(0.125));
  const auto copy = spec.clone();
  EXPECT_EQ(copy->describe(), spec.describe());
  EXPECT_EQ(copy->group_of(parameter("head.weight")), 1);
  EXPECT_EQ(copy->learning_rate(1), 0.125);
}

TEST(Optimizers, ErrorsNameTheOption) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refuses = [](const OptimizerSpec& spec, const std::string& part) {
    expect_error([&] { spec.validate(); }, part);
  };
  refuses(AdamW(-1), "AdamW: lr is -1");
  refuses(AdamW(nan), "AdamW: lr");
  refuses(AdamW().beta1(1), "AdamW: beta1 is 1");
  refuses(AdamW().beta2(-0.1), "AdamW: beta2 is -0.1");
  refuses(AdamW().eps(0), "AdamW: eps is 0");
  refuses(AdamW().eps(1e-60), "AdamW: eps");
  refuses(AdamW().weight_decay(-1), "AdamW: weight_decay is -1");
  refuses(Adam(nan), "Adam: lr");
  refuses(Adam().beta1(2), "Adam: beta1 is 2");
  refuses(Adam().eps(-1), "Adam: eps is -1");
  refuses(SGD(-0.5), "SGD: lr is -0.5");
  refuses(SGD(1).momentum(-1), "SGD: momentum is -1");
  refuses(SGD(1).dampening(nan), "SGD: dampening");
  refuses(SGD(1).weight_decay(-1), "SGD: weight_decay is -1");
  refuses(SGD(1).nesterov(true), "SGD: nesterov needs momentum");
  refuses(SGD(1).momentum(0.9).dampening(0.1).nesterov(true), "dampening 0.1");
  refuses(SGD(1).moments(MomentFormat::bf16), "without momentum there is none");
  refuses(LAMB().eps(0), "LAMB: eps is 0");
  refuses(Lion().beta1(1), "Lion: beta1 is 1");
  for (const auto& good : {AdamW().clone(), Adam(0).clone(), SGD(1).momentum(0.9).clone()}) {
    EXPECT_NO_THROW(good->validate());
  }
}

TEST(Optimizers, GroupsAreCheckedToo) {
  const auto refuses = [](const OptimizerSpec& spec, const std::string& part) {
    expect_error([&] { spec.validate(); }, part);
  };
  refuses(AdamW().group(is_head, AdamW(-1)), "AdamW: lr is -1");
  refuses(AdamW().group(nullptr, AdamW()), "group 1 has no predicate");
  refuses(AdamW().group(is_head, AdamW().group(is_weight, AdamW())), "groups of their own");
}

}  // namespace
}  // namespace lockstep
