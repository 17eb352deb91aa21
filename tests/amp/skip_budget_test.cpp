// How many skips in a row a loss scale allows, and numbers that are not finite, told from tensors.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/amp/non_finite_tracer.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "test_device.h"
#include "test_names.h"

namespace lockstep {
namespace {

using amp::LossScaler;
using amp::LossScalerOptions;
using amp::NonFinite;
using amp::ScalerState;

bool spent(const LossScalerOptions& options, const ScalerState& state) {
  try {
    amp::check_skip_budget(options, state);
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::non_finite);
    return true;
  }
}

/// The state in which a row of skips from this scale ends.
ScalerState end_of_skips(const LossScalerOptions& options, float scale) {
  const amp::ScalerRule rule = amp::scaler_rule(options);
  ScalerState state = amp::initial_state(options);
  state.scale = scale;
  bool next = false;
  while (!spent(options, state)) {
    next = amp::next_skip_spends_budget(options, state);
    amp::advance(state, rule, /*overflow=*/true);
    EXPECT_EQ(spent(options, state), next && state.consecutive_skips > 1);
    if (state.consecutive_skips > 100'000) {
      ADD_FAILURE() << "no end";
      break;
    }
  }
  return state;
}

TEST(SkipBudget, NoFallOfADynamicScaleSpendsTheDefaultBudget) {
  const std::vector<LossScalerOptions> all = {
      LossScalerOptions::torch(),
      LossScalerOptions::apex(),
      LossScalerOptions::deepspeed(),
      LossScalerOptions::megatron(),
      LossScalerOptions().backoff_factor(0.9),
      LossScalerOptions().hysteresis(50),
      LossScalerOptions().min_scale(1.0),
      LossScalerOptions().init_scale(1e30),
  };
  for (const LossScalerOptions& options : all) {
    const auto most = static_cast<float>(options.max_scale());
    for (const float start : {static_cast<float>(options.init_scale()), most}) {
      const ScalerState end = end_of_skips(options, start);
      EXPECT_LE(end.scale, std::max(options.min_scale(), 1.0 / 65536.0)) << start;
      EXPECT_GE(end.consecutive_skips, 20);
    }
  }
  EXPECT_EQ(end_of_skips(LossScalerOptions::torch(), 65536.0F).consecutive_skips, 32);
}

TEST(SkipBudget, AScaleThatCannotFallGetsTwentySkips) {
  for (const LossScalerOptions& options :
       {LossScalerOptions::fixed(128.0), LossScalerOptions::disabled(),
        LossScalerOptions().backoff_factor(1.0), LossScalerOptions().enabled(false)}) {
    const auto start = static_cast<float>(options.init_scale());
    EXPECT_EQ(end_of_skips(options, start).consecutive_skips, 20);
  }
}

TEST(SkipBudget, ADisabledScalerScalesByOneWhateverItsInitScale) {
  LossScaler scaler(LossScalerOptions().enabled(false), device());
  EXPECT_EQ(scaler.scale(testing::full({}, 3.0)).item<float>(), 3.0F);
}

TEST(SkipBudget, AHandWrittenLoopEndsToo) {
  LossScaler scaler(LossScalerOptions(), device());
  torch::nn::Linear model(2, 1);
  model->to(device());
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  int skips = 0;
  const auto round = [&] {
    optimizer.zero_grad();
    scaler.scale(model(ones({3, 2})).sum() * std::nanf("")).backward();
    skips += scaler.step(optimizer) ? 0 : 1;
    scaler.update();
  };
  for (int i = 0; i < 32; ++i) {
    round();
  }
  EXPECT_THROW(round(), Error);
  EXPECT_EQ(skips, 33);
}

std::optional<NonFinite> trace(const std::function<at::Tensor(torch::nn::Linear&)>& loss_of) {
  torch::nn::Linear model(4, 4);
  model->to(device());
  amp::NonFiniteTracer tracer{Model(model)};
  const at::Tensor loss = loss_of(model);
  tracer.begin_backward();
  torch::autograd::grad({loss}, model->parameters());
  return tracer.first();
}

TEST(NonFiniteNumbers, ANumberThatIsNotFiniteIsAFindOfItsOwn) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double number : {infinity, std::nan("")}) {
    const auto found = trace([&](torch::nn::Linear& model) {
      return model(ones({3, 4})).square().mean() * number;
    });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->origin, NonFinite::Origin::number);
    EXPECT_EQ(std::isnan(found->number), std::isnan(number));
    EXPECT_EQ(found->first.name, "aten::mul");
    EXPECT_THAT(found->describe(),
                HasSubstr(c10::str("the number ", number, " of the program, not a tensor")));
  }
  EXPECT_FALSE(trace([&](torch::nn::Linear& model) {
    const at::Tensor mask = (ones({4, 4}) * -infinity).triu(1);
    return at::softmax(model(ones({4, 4})) + mask, -1).square().sum();
  })) << "a mask";
  const auto divided = trace([&](torch::nn::Linear& model) {
    const volatile double count = 0.0;
    return model(ones({3, 4})).square().mean() / double{count};
  });
  ASSERT_TRUE(divided);
  EXPECT_EQ(divided->origin, NonFinite::Origin::op);
  EXPECT_EQ(divided->first.name, "aten::div");
}

}  // namespace
}  // namespace lockstep
