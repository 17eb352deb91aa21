#include "spans.h"
#include "test_names.h"
#include "update_samples.h"

#include <lockstep/amp/optimizers.h>
#include <lockstep/amp/update/flat_rule.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>

namespace lockstep {
namespace {

constexpr int64_t kSize = 999;

at::Tensor gradient_of(int step) {
  const auto positions = at::arange(kSize, at::kFloat);
  return at::sin(positions * 0.37 + step) * at::exp(at::cos(positions * 1.3) * 4.0);
}

/// 50 updates by both; the largest difference relative to the largest weight.
double difference(const FusedOptimizer& ours, const TorchOptimizer::Factory& theirs) {
  const auto start = at::linspace(-2.0, 2.0, kSize);
  const auto rule = ours.rule(0);
  amp::FlatSpan span;
  span.master = start.clone();
  for (int i = 0; i < rule->moments(); ++i) {
    span.moments.push_back(at::zeros({kSize}));
  }
  auto parameter = start.clone().requires_grad_(true);
  const auto optimizer = theirs({parameter});
  amp::StepState state;
  for (state.update = 1; state.update <= 50; ++state.update) {
    span.gradient = gradient_of(static_cast<int>(state.update));
    rule->apply(span, &state);
    parameter.mutable_grad() = span.gradient.clone();
    optimizer->step();
  }
  EXPECT_FALSE(at::allclose(span.master, start, 1e-3)) << "nothing moved";
  const auto expected = parameter.detach().to(at::kDouble);
  const auto error = (span.master.to(at::kDouble) - expected).abs().max() / expected.abs().max();
  return error.item<double>();
}

template <typename Optimizer, typename Options>
TorchOptimizer::Factory factory(const Options& options) {
  return [options](std::vector<at::Tensor> parameters) {
    return std::make_unique<Optimizer>(parameters, options);
  };
}

TEST(OptimizerParity, AdamW) {
  for (const double lr : {1e-3, 0.05}) {
    for (const double decay : {0.0, 0.01, 0.3}) {
      for (const auto& [b1, b2, eps] : {std::tuple{0.9, 0.999, 1e-8}, {0.0, 0.95, 1e-4}}) {
        const auto ours = AdamW(lr).weight_decay(decay).beta1(b1).beta2(b2).eps(eps);
        auto options = torch::optim::AdamWOptions(lr).weight_decay(decay).eps(eps);
        options.betas(std::make_tuple(b1, b2));
        EXPECT_LT(difference(ours, factory<torch::optim::AdamW>(options)), 1e-6)
            << ours.describe() << " beta1 " << b1;
      }
    }
  }
}

TEST(OptimizerParity, Adam) {
  for (const double lr : {1e-3, 0.05}) {
    for (const double decay : {0.0, 0.01, 0.3}) {
      for (const auto& [b1, b2, eps] : {std::tuple{0.9, 0.999, 1e-8}, {0.5, 0.9, 1e-4}}) {
        const auto ours = Adam(lr).weight_decay(decay).beta1(b1).beta2(b2).eps(eps);
        auto options = torch::optim::AdamOptions(lr).weight_decay(decay).eps(eps);
        options.betas(std::make_tuple(b1, b2));
        EXPECT_LT(difference(ours, factory<torch::optim::Adam>(options)), 1e-6)
            << ours.describe() << " beta1 " << b1;
      }
    }
  }
}

TEST(OptimizerParity, SGD) {
  for (const double momentum : {0.0, 0.5, 0.9}) {
    for (const double dampening : {0.0, 0.3}) {
      for (const double decay : {0.0, 0.1}) {
        for (const bool nesterov : {false, true}) {
          if (nesterov && (momentum == 0.0 || dampening != 0.0)) {
            continue;
          }
          const auto ours =
              SGD(0.01).momentum(momentum).dampening(dampening).weight_decay(decay).nesterov(
                  nesterov);
          const auto options = torch::optim::SGDOptions(0.01)
                                   .momentum(momentum)
                                   .dampening(dampening)
                                   .weight_decay(decay)
                                   .nesterov(nesterov);
          EXPECT_LT(difference(ours, factory<torch::optim::SGD>(options)), 1e-6)
              << ours.describe() << " dampening " << dampening << " nesterov " << nesterov;
        }
      }
    }
  }
}

/// 50 updates by the functor and by its formula in fp64.
template <typename Update>
void expect_its_formula() {
  const auto update = testing::sample<Update>();
  const auto rule = amp::flat_rule(update);
  amp::FlatSpan span;
  span.master = at::linspace(-2.0, 2.0, kSize);
  span.moments.assign(Update::kMoments, at::Tensor());
  for (at::Tensor& moment : span.moments) {
    moment = at::zeros({kSize});
  }
  std::vector<testing::PlainElement> plain(static_cast<size_t>(kSize));
  for (size_t i = 0; i < plain.size(); ++i) {
    plain[i].weight = span.master.const_data_ptr<float>()[i];
  }
  amp::StepState state;
  for (state.update = 1; state.update <= 50; ++state.update) {
    span.gradient = gradient_of(static_cast<int>(state.update));
    rule->apply(span, &state);
    for (size_t i = 0; i < plain.size(); ++i) {
      formula(update, span.gradient.const_data_ptr<float>()[i], state.update, plain[i]);
    }
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    const double expected = plain[i].weight;
    ASSERT_NEAR(span.master.const_data_ptr<float>()[i], expected,
                1e-5 * std::max(1.0, std::abs(expected)))
        << "element " << i;
  }
}

#define LOCKSTEP_TEST(Update)                   \
  TEST(OptimizerParity, Update##IsItsFormula) { \
    expect_its_formula<amp::Update>();          \
  }
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_TEST)

/// A torch::optim::Optimizer whose step is `rule` on a parameter and its state, in fp64.
template <typename Rule>
class Written final : public torch::optim::Optimizer {
 public:
  Written(const std::vector<at::Tensor>& parameters, Rule rule)
      : Optimizer({torch::optim::OptimizerParamGroup(parameters)},
                  std::make_unique<torch::optim::SGDOptions>(0.0)),
        rule_(std::move(rule)) {}
  at::Tensor step(LossClosure) override {
    const at::NoGradGuard no_grad;
    at::Tensor parameter = param_groups()[0].params()[0];
    rule_(parameter, parameter.grad().to(at::kDouble), ++count_);
    return {};
  }

 private:
  Rule rule_;
  int count_ = 0;
};

template <typename Rule>
TorchOptimizer::Factory written(Rule rule) {
  return [rule](std::vector<at::Tensor> parameters) {
    return std::make_unique<Written<Rule>>(parameters, rule);
  };
}

TEST(OptimizerParity, LAMB) {
  for (const double lr : {1e-3, 0.05}) {
    for (const double decay : {0.0, 0.01, 0.3}) {
      const auto reference = [=, m = at::zeros({kSize}, at::kDouble),
                              v = at::zeros({kSize}, at::kDouble), w = at::Tensor()](
                                 at::Tensor& parameter, const at::Tensor& g, int step) mutable {
        w = w.defined() ? w : parameter.to(at::kDouble).clone();
        m = 0.9 * m + 0.1 * g;
        v = 0.999 * v + 0.001 * g * g;
        const auto u =
            m / (1 - std::pow(0.9, step)) / ((v / (1 - std::pow(0.999, step))).sqrt() + 1e-6) +
            decay * w;
        const auto ratio = decay == 0.0 ? at::ones({}, at::kDouble) : w.norm() / u.norm();
        w = w - lr * ratio * u;
        parameter.copy_(w);
      };
      const auto ours = LAMB(lr).weight_decay(decay);
      EXPECT_LT(difference(ours, written(reference)), 2e-6) << ours.describe();
    }
  }
}

TEST(OptimizerParity, Lion) {
  for (const double lr : {1e-3, 0.05}) {
    for (const double decay : {0.0, 0.3}) {
      const auto reference = [=, m = at::zeros({kSize}, at::kDouble), w = at::Tensor()](
                                 at::Tensor& parameter, const at::Tensor& g, int) mutable {
        w = w.defined() ? w : parameter.to(at::kDouble).clone();
        w = w * (1 - lr * decay) - lr * at::sign(0.9 * m + 0.1 * g);
        m = 0.99 * m + 0.01 * g;
        parameter.copy_(w);
      };
      const auto ours = Lion(lr).weight_decay(decay);
      EXPECT_LT(difference(ours, written(reference)), 2e-6) << ours.describe();
    }
  }
}

TEST(OptimizerParity, LambsTrustRatioIsOneForAWeightOfZeros) {
  amp::FlatSpan span;
  span.gradient = at::ones({64});
  span.master = at::zeros({64});
  span.moments = {at::zeros({64}), at::zeros({64})};
  const amp::StepState state;
  LAMB(0.1).weight_decay(0.5).eps(1e-12).rule(0)->apply(span, &state);
  EXPECT_TRUE(at::allclose(span.master, at::full({64}, -0.1)));
}

TEST(TorchOptimizer, RunsAnyOptimizerOnTheMasters) {
  const TorchOptimizer spec(factory<torch::optim::SGD>(torch::optim::SGDOptions(0.5)));
  EXPECT_NO_THROW(spec.validate());
  auto master = at::ones({3}).requires_grad_(true);
  const auto copy = std::static_pointer_cast<TorchOptimizer>(spec.clone());
  const auto optimizer = copy->build({master});
  ASSERT_NE(optimizer, nullptr);
  master.mutable_grad() = at::ones({3});
  optimizer->step();
  EXPECT_TRUE(at::equal(master.detach(), at::full({3}, 0.5)));
}

TEST(TorchOptimizer, RefusesLbfgsByName) {
  const TorchOptimizer spec(factory<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.5)));
  expect_error([&] { spec.build({at::ones({3})}); }, "LBFGS");
}

TEST(TorchOptimizer, RefusesAnOptimizerOnOtherTensors) {
  const auto weights = at::ones({3});
  const TorchOptimizer spec([&](const std::vector<at::Tensor>&) {
    return std::make_unique<torch::optim::SGD>(std::vector<at::Tensor>{weights}, 0.5);
  });
  expect_error([&] { spec.build({at::ones({3})}); }, "no master");
}

TEST(TorchOptimizer, RefusesFactoriesThatMakeNothing) {
  expect_error([] { TorchOptimizer(nullptr).validate(); }, "factory is empty");
  const TorchOptimizer null(
      [](const std::vector<at::Tensor>&) { return std::unique_ptr<torch::optim::Optimizer>(); });
  expect_error([&] { null.build({at::ones({3})}); }, "returned no optimizer");
  const TorchOptimizer empty([](const std::vector<at::Tensor>&) {
    return std::make_unique<torch::optim::SGD>(std::vector<at::Tensor>{}, 0.5);
  });
  expect_error([&] { empty.build({at::ones({3})}); }, "holds no parameter");
}

TEST(OptimizerKinds, OnlyATorchOptimizerIsNotFused) {
  const AdamW adamw(0.5);
  EXPECT_EQ(adamw.fused(), &adamw);
  const auto copy = SGD(0.1).clone();
  EXPECT_EQ(copy->fused(), copy.get());
  const TorchOptimizer torch_one(factory<torch::optim::SGD>(torch::optim::SGDOptions(0.5)));
  EXPECT_EQ(torch_one.fused(), nullptr);
  EXPECT_EQ(torch_one.groups(), 1);
}

}  // namespace
}  // namespace lockstep
