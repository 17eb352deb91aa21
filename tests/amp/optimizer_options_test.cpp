#include "spans.h"
#include "test_names.h"

#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizers.h>

#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

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
float after_update(const FusedOptimizer& spec, int group, float weight) {
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
  EXPECT_EQ(Adam(1.0 / 3).beta2(0.5).eps(1e-6).group(is_head, Adam().weight_decay(1)).describe(),
            "Adam lr 0.3333333333333333 beta2 0.5 eps 1e-06 weight_decay 0, 2 groups; "
            "group 1 lr 0.3333333333333333 beta2 0.5 eps 1e-06 weight_decay 1");
  EXPECT_EQ(SGD(0.1).momentum(0.9).nesterov(true).describe(),
            "SGD lr 0.1 momentum 0.9 nesterov weight_decay 0, 1 group");
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
  EXPECT_EQ(copy->fused()->learning_rate(1), 0.125);
  EXPECT_EQ(copy->fused()->rule(1)->moments(), 1);
  EXPECT_EQ(copy->fused()->rule(1)->moment_format(), MomentFormat::bf16);
  EXPECT_EQ(copy->fused()->learning_rate(2), 0.25);
  EXPECT_EQ(copy->fused()->rule(2)->moments(), 1);
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
  EXPECT_EQ(copy->fused()->learning_rate(1), 0.125);
}

/// What `options` in `group` make of a few weights in three updates.
std::vector<at::Tensor> after_updates(const FusedOptimizer& options, int group) {
  const auto rule = options.rule(group);
  amp::FlatSpan span;
  span.master = at::linspace(-2.0, 2.0, 33);
  span.gradient = at::zeros({33});
  amp::add_moments(span, *rule);
  amp::StepState state;
  for (state.update = 1; state.update <= 3; ++state.update) {
    span.gradient = at::sin(at::arange(33, at::kFloat) * static_cast<double>(state.update)) + 1e-3;
    rule->apply(span, &state);
  }
  return {span.master.clone(), at::full({1}, options.learning_rate(group), at::kDouble)};
}

void expect_same(const FusedOptimizer& found, int group, const FusedOptimizer& expected,
                 const std::string& what) {
  EXPECT_EQ(found.describe_group(group), expected.describe_group(0)) << what;
  EXPECT_EQ(found.rule(group)->moment_format(), expected.rule(0)->moment_format()) << what;
  const auto theirs = after_updates(expected, 0);
  const auto ours = after_updates(found, group);
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(at::equal(ours[i], theirs[i])) << what << ", " << found.describe();
  }
  EXPECT_NO_THROW(found.validate()) << what;
}

template <typename Spec>
using Setters = std::vector<std::pair<std::string, std::function<void(Spec&)>>>;

/// `start`: with the options without which others are refused. `defaults` sets each of `options` to
/// its default.
template <typename Spec>
void expect_groups_inherit(const Spec& start, const Setters<Spec>& options,
                           const Setters<Spec>& defaults) {
  for (size_t i = 0; i < options.size(); ++i) {
    Spec alone = start;
    options[i].second(alone);
    for (size_t j = 0; j < options.size(); ++j) {
      const auto& [name, change] = i == j ? defaults[j] : options[j];
      Spec expected = alone;
      change(expected);
      for (const bool late : {false, true}) {
        for (const bool by_function : {false, true}) {
          const std::string what = c10::str(Spec::kName, ", ", options[i].first, " set ",
                                            late ? "late" : "early", ", ", name, " in the group");
          Spec found = late ? start : alone;
          if (by_function) {
            found.group(is_head, change);
          } else if (std::is_default_constructible_v<Spec> || name == "lr") {
            Spec own(1.0);
            if constexpr (std::is_default_constructible_v<Spec>) {
              own = Spec();
            }
            change(own);
            found.group(is_head, own);
          } else {
            continue;  // this optimizer always has a learning rate of its own
          }
          if (late) {
            options[i].second(found);
          }
          expect_same(found, 1, expected, what);
          expect_same(found, 0, alone, what);
          expect_same(*found.clone()->fused(), 1, expected, what + ", cloned");
        }
      }
    }
  }
}

#define LOCKSTEP_SET(Spec, option, value)            \
  {                                                  \
#option, [](Spec & spec) { spec.option(value); } \
  }

template <typename Spec>
void expect_groups_of_betas_inherit() {
  const Setters<Spec> options = {
      LOCKSTEP_SET(Spec, lr, 0.25), LOCKSTEP_SET(Spec, beta1, 0.5), LOCKSTEP_SET(Spec, beta2, 0.75),
      LOCKSTEP_SET(Spec, weight_decay, 0.125), LOCKSTEP_SET(Spec, moments, MomentFormat::bf16)};
  const Setters<Spec> defaults = {LOCKSTEP_SET(Spec, lr, Spec().lr()),
                                  LOCKSTEP_SET(Spec, beta1, Spec().beta1()),
                                  LOCKSTEP_SET(Spec, beta2, Spec().beta2()),
                                  LOCKSTEP_SET(Spec, weight_decay, Spec().weight_decay()),
                                  LOCKSTEP_SET(Spec, moments, MomentFormat::fp32)};
  expect_groups_inherit<Spec>(Spec(), options, defaults);
}

template <typename Spec>
void expect_groups_of_adam_inherit() {
  expect_groups_of_betas_inherit<Spec>();
  expect_groups_inherit<Spec>(
      Spec(), {LOCKSTEP_SET(Spec, eps, 0.5), LOCKSTEP_SET(Spec, weight_decay, 0.125)},
      {LOCKSTEP_SET(Spec, eps, Spec().eps()),
       LOCKSTEP_SET(Spec, weight_decay, Spec().weight_decay())});
}

TEST(OptimizerGroups, HaveTheOptionsOfTheOptimizerThatTheyDoNotSet) {
  expect_groups_of_adam_inherit<AdamW>();
  expect_groups_of_adam_inherit<Adam>();
  expect_groups_of_adam_inherit<LAMB>();
  expect_groups_of_betas_inherit<Lion>();
  expect_groups_inherit<SGD>(
      SGD(0.5).momentum(0.25),
      {LOCKSTEP_SET(SGD, lr, 0.125), LOCKSTEP_SET(SGD, momentum, 0.5),
       LOCKSTEP_SET(SGD, dampening, 0.5), LOCKSTEP_SET(SGD, weight_decay, 0.125),
       LOCKSTEP_SET(SGD, moments, MomentFormat::bf16)},
      {LOCKSTEP_SET(SGD, lr, 0.0), LOCKSTEP_SET(SGD, momentum, 0.25),
       LOCKSTEP_SET(SGD, dampening, 0.0), LOCKSTEP_SET(SGD, weight_decay, 0.0),
       LOCKSTEP_SET(SGD, moments, MomentFormat::fp32)});
  expect_groups_inherit<SGD>(
      SGD(0.5).momentum(0.25),
      {LOCKSTEP_SET(SGD, nesterov, true), LOCKSTEP_SET(SGD, weight_decay, 0.125)},
      {LOCKSTEP_SET(SGD, nesterov, false), LOCKSTEP_SET(SGD, weight_decay, 0.0)});
}

#undef LOCKSTEP_SET

TEST(OptimizerGroups, AFunctionStartsFromTheOptionsOfTheOptimizer) {
  auto spec = SGD(0.5).momentum(0.5);
  spec.group(is_head, [](SGD& own) { own.lr(0.5 * own.lr()).momentum(0.0); }).lr(1.0);
  EXPECT_EQ(spec.learning_rate(0), 1.0);
  EXPECT_EQ(spec.learning_rate(1), 0.5);
  EXPECT_EQ(spec.rule(1)->moments(), 0);
}

TEST(OptimizerGroups, DoNotInheritFromOneAnother) {
  const auto spec = AdamW(0.5)
                        .group(is_head, AdamW().beta1(0.25))
                        .group(is_weight, AdamW().weight_decay(0.25))
                        .no_decay_on_norms_and_biases();
  EXPECT_EQ(spec.describe_group(1), "lr 0.5 beta1 0.25 weight_decay 0.01");
  EXPECT_EQ(spec.describe_group(2), "lr 0.5 weight_decay 0.25");
  EXPECT_EQ(spec.describe_group(3), "lr 0.5 weight_decay 0");
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
  refuses(AdamW().group(is_head, [](AdamW& own) { own.no_decay_on_norms_and_biases(); }),
          "groups of their own");
  refuses(AdamW().group(is_head, std::function<void(AdamW&)>()), "group 1 has no function");
  refuses(AdamW().group(is_head, [](AdamW& own) { own.beta2(1); }), "AdamW: beta2 is 1");
  // Valid alone, but not with what it inherits.
  refuses(SGD(1).momentum(0.5).dampening(0.5).group(is_head, SGD(1).nesterov(true)),
          "dampening 0.5");
}

}  // namespace
}  // namespace lockstep
