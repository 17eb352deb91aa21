// Chains whose stages need no gradient or change their input in place: under every budget, the
// plain weights, bit for bit.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "error_of.h"
#include "test_names.h"
#include "test_runtime.h"
#include "trained.h"

namespace lockstep {
namespace {

using torch::nn::BatchNorm1d;
using torch::nn::Dropout;
using torch::nn::DropoutOptions;
using torch::nn::ELU;
using torch::nn::ELUOptions;
using torch::nn::Flatten;
using torch::nn::Identity;
using torch::nn::LeakyReLU;
using torch::nn::LeakyReLUOptions;
using torch::nn::Linear;
using torch::nn::ReLU;
using torch::nn::ReLUOptions;
using torch::nn::Sequential;
using torch::nn::Tanh;

constexpr int64_t batch = 32;
constexpr int64_t width = 16;

struct Detach : torch::nn::Module {
  at::Tensor forward(at::Tensor x) { return x.detach(); }
};

/// A block as ResNets have it, whose first operator changes the input.
struct Preactivated : torch::nn::Module {
  Preactivated() { register_module("linear", linear); }
  at::Tensor forward(at::Tensor x) { return linear(x.relu_()) + x; }
  Linear linear{width, width};
};

/// A Sequential in a Sequential.
struct Nested : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  at::Tensor forward(at::Tensor x) { return SequentialImpl::forward(std::move(x)); }
};

struct Model {
  std::string name;
  std::function<void(Sequential&)> head;
  std::function<void(Sequential&, int)> block;  // six of them
  std::function<at::Tensor()> input = [] { return testing::randn({batch, width}); };
};

ReLU relu() {
  return ReLU(ReLUOptions().inplace(true));
}
Dropout dropout() {
  return Dropout(DropoutOptions(0.2).inplace(true));
}

void nothing(Sequential& /*net*/) {}

void linear_tanh(Sequential& net, int /*block*/) {
  net->push_back(Linear(width, width));
  net->push_back(Tanh());
}

void linear_elu(Sequential& net, int /*block*/) {
  net->push_back(Linear(width, width));
  net->push_back(ELU(ELUOptions().inplace(true)));
}

void freeze(const torch::nn::Module& module) {
  for (at::Tensor& parameter : module.parameters()) {
    parameter.set_requires_grad(false);
  }
}

std::vector<Model> models() {
  const auto images = [] { return testing::randn({batch, 4, 4}); };
  const auto words = [] { return at::randint(20, {batch}).to(testing::device()); };
  const auto frozen_until = [](int last) {
    return [last](Sequential& net, int block) {
      linear_tanh(net, block);
      if (block <= last) {
        freeze(*net);
      }
    };
  };
  return {
      {"Flatten first", [](Sequential& net) { net->push_back(Flatten()); }, linear_tanh, images},
      {"two stages without weights first",
       [](Sequential& net) {
         net->push_back(Tanh());
         net->push_back(Flatten());
       },
       linear_tanh, images},
      {"frozen stem", nothing, frozen_until(1)},
      {"frozen but for the last", nothing, frozen_until(4)},
      {"frozen embedding first",
       [](Sequential& net) {
         net->push_back(torch::nn::Embedding(20, width));
         freeze(*net);
       },
       linear_tanh, words},
      {"embedding first", [](Sequential& net) { net->push_back(torch::nn::Embedding(20, width)); },
       linear_tanh, words},
      {"detached in the middle", nothing,
       [](Sequential& net, int block) {
         linear_tanh(net, block);
         if (block == 2) {
           net->push_back(Detach());
         }
       }},
      {"frozen stages in the middle", nothing,
       [](Sequential& net, int block) {
         linear_tanh(net, block);
         if (block == 2 || block == 3) {
           freeze(*net->ptr(static_cast<size_t>(2 * block)));
         }
       }},
      {"in place behind each layer", nothing, linear_elu},
      {"in place behind each norm", nothing,
       [](Sequential& net, int /*block*/) {
         net->push_back(Linear(width, width));
         net->push_back(BatchNorm1d(width));
         net->push_back(relu());
       }},
      {"in place on the chain's input",
       [](Sequential& net) { net->push_back(ELU(ELUOptions().inplace(true))); }, linear_elu},
      {"random and in place on the chain's input",
       [](Sequential& net) { net->push_back(dropout()); }, linear_elu},
      {"in place one after another", nothing,
       [](Sequential& net, int /*block*/) {
         net->push_back(Linear(width, width));
         net->push_back(dropout());
         net->push_back(LeakyReLU(LeakyReLUOptions().inplace(true)));
       }},
      {"in place on a view", [](Sequential& net) { net->push_back(Flatten()); },
       [](Sequential& net, int /*block*/) {
         net->push_back(Linear(width, width));
         net->push_back(torch::nn::Unflatten(torch::nn::UnflattenOptions(1, {4, 4})));
         net->push_back(dropout());
         net->push_back(Flatten());
         net->push_back(relu());
       },
       images},
      {"in place on what an identity passes on", nothing,
       [](Sequential& net, int /*block*/) {
         net->push_back(Linear(width, width));
         net->push_back(Identity());
         net->push_back(relu());
       }},
      {"in place on the input, frozen stem", [](Sequential& net) { net->push_back(relu()); },
       [](Sequential& net, int block) {
         linear_elu(net, block);
         if (block <= 1) {
           freeze(*net);
         }
       }},
      {"blocks that begin in place", nothing,
       [](Sequential& net, int /*block*/) {
         net->push_back(Linear(width, width));
         net->push_back(Preactivated());
       }},
      {"nested Sequentials that begin in place", nothing,
       [](Sequential& net, int /*block*/) {
         net->push_back(Linear(width, width));
         net->push_back(std::make_shared<Nested>(relu(), Linear(width, width), dropout()));
       }},
      {"convolutions as VGG has them", nothing,
       [](Sequential& net, int block) {
         net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 2, 3).padding(1)));
         net->push_back(relu());
         if (block == 5) {
           net->push_back(torch::nn::MaxPool2d(2));
           net->push_back(Flatten());
           net->push_back(dropout());
           net->push_back(Linear(8, 4));
         }
       },
       [] {
         return testing::randn({batch, 2, 4, 4});
       }},
  };
}

Sequential made(const Model& model) {
  torch::manual_seed(31);
  Sequential net;
  model.head(net);
  for (int block = 0; block < 6; ++block) {
    model.block(net, block);
  }
  net->to(testing::device());
  return net;
}

at::Tensor input_of(const Model& model, int step) {
  torch::manual_seed(200 + static_cast<uint64_t>(step * 10 + runtime().rank()));
  return model.input();
}

Trained trained(const Model& model, const TrainerOptions& options) {
  Sequential net = made(model);
  Trainer trainer(runtime(), net, AdamW(1e-2), options);
  Trained result;
  for (int step = 0; step < 5; ++step) {
    const at::Tensor x = input_of(model, step);
    trainer.step([&]() -> Loss { return net->forward(x).to(at::kFloat).square().mean(); });
    result.tensors.push_back(x);
  }
  result.report = trainer.activation_report();
  for (const at::Tensor& parameter : net->parameters()) {
    result.tensors.push_back(parameter.detach().clone());
  }
  for (const at::Tensor& buffer : net->buffers()) {
    result.tensors.push_back(buffer.clone());
  }
  return result;
}

class ActivationStages : public ::testing::TestWithParam<size_t> {};

TEST_P(ActivationStages, EndAtThePlainWeightsUnderEveryBudget) {
  const Model model = models()[GetParam()];
  const auto options = TrainerOptions().unused(UnusedParameters::zeros);
  const Trained plain = trained(model, options);
  Sequential net = made(model);
  const int64_t least = least_activation_bytes(profile_chain(chain_of(net), input_of(model, 0)));
  const std::vector<ActivationBudget> budgets = {"automatic", least, least * 5 / 4, 1 << 20};
  for (const ActivationBudget& budget : budgets) {
    const Trained ours = trained(model, TrainerOptions(options).activation_budget(budget));
    expect_equal(plain, ours, model.name + ", budget " + budget.text() + ", " + ours.report);
    EXPECT_THAT(ours.report, HasSubstr("measured")) << model.name;
  }
}

INSTANTIATE_TEST_SUITE_P(OfEachKind, ActivationStages,
                         ::testing::Range<size_t>(0, models().size()));

TEST(ActivationStages, EachPlanRunsStagesInPlaceWithThePlainGradients) {
  const auto gradients = [](const Model& model, const CheckpointPlan& plan) {
    Sequential net = made(model);
    const at::Tensor x = input_of(model, 0);
    const at::Tensor loss = plan.run(chain_of(net), x).square().mean();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    std::vector<at::Tensor> result;
    for (const at::Tensor& parameter : net->parameters()) {
      result.push_back(parameter.grad());
    }
    return result;
  };
  const auto expect_plain = [&](const std::string& name, const std::vector<std::string>& plans) {
    const std::vector<Model> all = models();
    const Model& model =
        *std::find_if(all.begin(), all.end(), [&](const Model& one) { return one.name == name; });
    const auto stages = static_cast<int64_t>(made(model)->size());
    const auto plain = gradients(model, CheckpointPlan::uniform(stages, 1));
    for (const std::string& text : plans) {
      const auto ours = gradients(model, CheckpointPlan::parse(text));
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(at::equal(plain[i], ours[i])) << name << ", " << text << ", gradient " << i;
      }
    }
  };
  expect_plain("in place one after another",
               {"(0) (1) (2) (3) (4) (5 (6 (7 (8) 9) 10) 11) 12 13 14 15 16 17",
                "0 (1 2 3 4 (5 6 7 (8 9)) (10 11 12) 13) (14) 15 16 17",
                "((((((0 1) 2 3 4) 5 6 (7 8)) 9) 10) 11) 12 13 (14 15 16 17)"});
  expect_plain("blocks that begin in place",
               {"0 (1 2 (3 4) (5 6 (7 8)) 9) 10 11", "(0 ((1 2) 3 4) 5 (6 (7 8))) (9) 10 11",
                "((0 (1)) (2 (3)) 4 (5)) (6 (7 8 (9 10)) 11)"});
}

/// The whole chain frozen, and what trains behind it.
TEST(ActivationStages, AChainThatNeedsNoGradientRuns) {
  struct Probe : torch::nn::Module {
    Probe() {
      torch::manual_seed(33);
      for (int block = 0; block < 6; ++block) {
        linear_elu(body, block);
      }
      freeze(*body);
      register_module("body", body);
      head = register_module("head", Linear(width, 2));
      to(testing::device());
    }
    at::Tensor forward(const at::Tensor& x) { return head(body->forward(x)); }
    Sequential body;
    Linear head{nullptr};
  };
  const auto weight = [](const TrainerOptions& options) {
    const auto model = std::make_shared<Probe>();
    Trainer trainer(runtime(), model, AdamW(1e-2), options);
    torch::manual_seed(34 + static_cast<uint64_t>(runtime().rank()));
    for (int step = 0; step < 5; ++step) {
      trainer.step([&]() -> Loss {
        return model->forward(testing::randn({batch, width})).square().mean();
      });
    }
    return model->head->weight.detach().clone();
  };
  const at::Tensor plain = weight(TrainerOptions());
  for (const char* budget : {"automatic", "32 KiB"}) {
    EXPECT_TRUE(at::equal(plain, weight(TrainerOptions().activation_budget(budget)))) << budget;
  }
}

TEST(ActivationStages, AProfileGivesStagesWithoutGradientTheirForwardAlone) {
  Sequential net(Flatten(), Linear(width, width), Detach(), Tanh(), Linear(width, width), relu());
  freeze(*net->ptr(1));
  net->to(testing::device());
  const ChainCosts costs = profile_chain(chain_of(net), testing::randn({batch, 4, 4}));
  for (const size_t stage : {0, 1, 2, 3}) {
    EXPECT_FALSE(costs[stage].has_gradient) << stage;
    EXPECT_EQ(costs[stage].saved_bytes, 0) << stage;
    EXPECT_EQ(costs[stage].backward_seconds, 0) << stage;
    EXPECT_GT(costs[stage].forward_seconds, 0) << stage;
    EXPECT_FALSE(costs[stage].keeps_input) << stage;
  }
  EXPECT_TRUE(costs[4].has_gradient);
  EXPECT_TRUE(costs[4].keeps_input);
  EXPECT_FALSE(costs[4].changes_input);
  EXPECT_TRUE(costs[5].changes_input);
}

TEST(ActivationStages, TheProgramsOwnRegionStillRefusesToChangeItsInput) {
  const at::Tensor x = testing::randn({batch, width}).requires_grad_() * 1;
  const std::string message =
      error_of([&] { static_cast<void>(checkpoint([](at::Tensor y) { return y.relu_(); }, x)); });
  EXPECT_THAT(message, HasSubstr("modified in place inside the region"));
}

}  // namespace
}  // namespace lockstep
