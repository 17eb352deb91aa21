// Every optimizer against LibTorch on the joined batch, in one process: accumulated, sharded,
// resumed in the middle, with a branch of the model that joins late and rests now and then.
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <iostream>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

constexpr int64_t kUpdates = 12;

struct LateBranch : torch::nn::Module {
  LateBranch()
      : trunk(register_module("trunk", torch::nn::Linear(4, 6))),
        branch(register_module("branch", torch::nn::Linear(6, 6))),
        head(register_module("head", torch::nn::Linear(6, 2))) {
    to(testing::device());
  }
  at::Tensor loss(const Batch& batch, bool with_branch) {
    at::Tensor h = at::tanh(trunk->forward(batch.x));
    if (with_branch) {
      h = h + at::tanh(branch->forward(h));
    }
    return (head->forward(h) - batch.y).square().mean();
  }
  torch::nn::Linear trunk, branch, head;
};

std::shared_ptr<LateBranch> made(uint64_t seed) {
  at::manual_seed(seed);
  return std::make_shared<LateBranch>();
}

/// One way of training.
struct Way {
  int64_t accumulate = 1;
  bool late = false;
  bool resumed = false;
  bool sharded = false;

  bool uses_branch(int64_t update) const {
    return !late || (update >= 4 && update != 7 && update != 8);
  }
  at::Tensor loss(LateBranch& model, int64_t update, int64_t k, int rank) const {
    return model.loss(mlp_batch(update * 8 + k, rank), uses_branch(update));
  }
  std::string describe() const {
    return c10::str("accumulate ", accumulate, late ? ", late" : "", resumed ? ", resumed" : "",
                    sharded ? ", sharded" : "");
  }
};

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const int64_t accumulate : {1, 3}) {
    for (const bool late : {false, true}) {
      for (const bool resumed : {false, true}) {
        all.push_back({accumulate, late, resumed, false});
        if (runtime().size() > 1) {
          all.push_back({accumulate, late, resumed, true});
        }
      }
    }
  }
  return all;
}

at::Tensor ours(const OptimizerSpec& spec, const Way& way) {
  const SharedFolder folder;
  const auto options =
      TrainerOptions()
          .accumulate(way.accumulate)
          .shard_optimizer(way.sharded)
          .unused(way.late ? UnusedParameters::detect : UnusedParameters::error)
          .snapshots(SnapshotOptions().folder(folder.file("run")).asynchronous(false));
  auto model = made(3);
  auto trainer = std::make_unique<Trainer>(runtime(), model, spec, options);
  for (int64_t update = 0; update < kUpdates; ++update) {
    if (way.resumed && update == 6) {
      trainer->save();
      trainer.reset();
      model = made(4);
      trainer = std::make_unique<Trainer>(runtime(), model, spec, options);
      EXPECT_TRUE(trainer->resume().resumed);
    }
    for (int64_t k = 0; k < way.accumulate; ++k) {
      trainer->step([&]() -> Loss { return way.loss(*model, update, k, runtime().rank()); });
    }
  }
  EXPECT_TRUE(trainer->replicas_agree());
  return flat_masters(*trainer);
}

at::Tensor theirs(const TorchOptimizer::Factory& factory, const Way& way) {
  const auto model = made(3);
  const auto optimizer = factory(model->parameters());
  for (int64_t update = 0; update < kUpdates; ++update) {
    optimizer->zero_grad();
    const double share = 1.0 / static_cast<double>(way.accumulate * runtime().size());
    for (int64_t k = 0; k < way.accumulate; ++k) {
      for (int rank = 0; rank < runtime().size(); ++rank) {
        (way.loss(*model, update, k, rank) * share).backward();
      }
    }
    optimizer->step();
  }
  return flat(model->parameters());
}

/// `bound`: the rounding of averages in another order, as this optimizer carries it on.
void expect_libtorchs_weights(const OptimizerSpec& spec, const TorchOptimizer::Factory& factory,
                              double bound = 2e-6) {
  double worst = 0.0;
  for (const Way& way : ways()) {
    const double distance = relative_distance(ours(spec, way), theirs(factory, way));
    EXPECT_LE(distance, bound) << spec.describe() << ", " << way.describe();
    worst = std::max(worst, distance);
  }
  if (runtime().is_main()) {
    std::cout << "  " << spec.describe() << ": at most " << worst << "\n";
  }
}

template <typename Optimizer, typename Options>
TorchOptimizer::Factory factory(const Options& options) {
  return [options](std::vector<at::Tensor> parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

template <typename Optimizer, typename Options>
void expect_the_same_through_torch_optimizer(const Options& options) {
  const auto make = factory<Optimizer>(options);
  expect_libtorchs_weights(TorchOptimizer(make), make);
}

TEST(OptimizersOfRanks, EveryTorchOptimizerIsLibTorchsOnTheJoinedBatch) {
  using namespace torch::optim;
  expect_the_same_through_torch_optimizer<torch::optim::SGD>(
      SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01));
  expect_the_same_through_torch_optimizer<torch::optim::SGD>(
      SGDOptions(0.1).momentum(0.8).dampening(0.3));
  expect_the_same_through_torch_optimizer<torch::optim::Adam>(AdamOptions(0.01).amsgrad(true));
  expect_the_same_through_torch_optimizer<torch::optim::AdamW>(
      AdamWOptions(0.01).weight_decay(0.1));
  expect_the_same_through_torch_optimizer<torch::optim::Adagrad>(
      AdagradOptions(0.1).lr_decay(0.05).initial_accumulator_value(0.1));
  expect_the_same_through_torch_optimizer<torch::optim::Adagrad>(AdagradOptions(0.05));
  expect_the_same_through_torch_optimizer<torch::optim::RMSprop>(
      RMSpropOptions(0.01).centered(true).momentum(0.5));
}

/// A bias before a batch norm: its gradient is zero but for rounding.
struct Normed : torch::nn::Module {
  Normed()
      : first(register_module("first", torch::nn::Linear(4, 6))),
        head(register_module("head", torch::nn::Linear(6, 2))) {
    to(testing::device());
  }
  at::Tensor loss(const Batch& batch) {
    const at::Tensor h = at::batch_norm(first->forward(batch.x), {}, {}, {}, {},
                                        /*training=*/true, 0.1, 1e-5, /*cudnn_enabled=*/false);
    return (head->forward(at::tanh(h)) - batch.y).square().mean();
  }
  torch::nn::Linear first, head;
};

/// LibTorch alone, 12 updates of 3 micro-batches: in one backward, or in three.
at::Tensor trained_alone(const TorchOptimizer::Factory& factory, bool one_backward) {
  at::manual_seed(3);
  Normed model;
  const auto optimizer = factory(model.parameters());
  for (int64_t update = 0; update < kUpdates; ++update) {
    optimizer->zero_grad();
    at::Tensor sum;
    for (int64_t k = 0; k < 3; ++k) {
      const at::Tensor loss = model.loss(mlp_batch(update * 8 + k, 0)) / 3;
      if (one_backward) {
        sum = sum.defined() ? sum + loss : loss;
      } else {
        loss.backward();
      }
    }
    if (one_backward) {
      sum.backward();
    }
    optimizer->step();
  }
  return flat(model.parameters());
}

at::Tensor trained_by_a_trainer(const TorchOptimizer::Factory& factory) {
  Runtime solo = testing::solo_runtime();
  at::manual_seed(3);
  const auto model = std::make_shared<Normed>();
  Trainer trainer(solo, model, TorchOptimizer(factory), TrainerOptions().accumulate(3));
  for (int64_t step = 0; step < 3 * kUpdates; ++step) {
    trainer.step([&]() -> Loss { return model->loss(mlp_batch(step / 3 * 8 + step % 3, 0)); });
  }
  return flat_masters(trainer);
}

/// Where such a bias ends is as uncertain in LibTorch alone as between it and the Trainer; all else
/// is the same, and so is everything once Adagrad's sum does not begin at zero.
TEST(OptimizersOfRanks, AdagradDiffersFromItselfWhereGradientsAreOnlyRounding) {
  const auto from_zero = factory<torch::optim::Adagrad>(
      torch::optim::AdagradOptions(0.05).initial_accumulator_value(0));
  const at::Tensor three = trained_alone(from_zero, false);
  EXPECT_GT(relative_distance(trained_alone(from_zero, true), three), 1e-3);
  const at::Tensor found = trained_by_a_trainer(from_zero);
  EXPECT_GT(relative_distance(found, three), 1e-3);
  const auto without_the_bias = [](const at::Tensor& all) {
    return at::cat({all.slice(0, 0, 24), all.slice(0, 30)});
  };
  EXPECT_LE(relative_distance(without_the_bias(found), without_the_bias(three)), 1e-5);

  const auto from_more = factory<torch::optim::Adagrad>(
      torch::optim::AdagradOptions(0.05).initial_accumulator_value(0.1));
  EXPECT_LE(relative_distance(trained_by_a_trainer(from_more), trained_alone(from_more, true)),
            2e-6);
}

TEST(OptimizersOfRanks, LbfgsIsRefused) {
  const TorchOptimizer spec(factory<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.5)));
  EXPECT_THAT(testing::error_of([&] { Trainer(runtime(), made(3), spec); }),
              ::testing::HasSubstr("LBFGS evaluates a closure several times"));
}

/// A torch::optim::Optimizer whose step is `rule` on a parameter, its gradient in fp64, and a state
/// of its own; parameters without gradient are left out.
struct RuleState {
  int64_t step = 0;
  at::Tensor m, v;
};
using Rule = std::function<at::Tensor(const at::Tensor& weight, const at::Tensor& g, RuleState&)>;

class Written final : public torch::optim::Optimizer {
 public:
  Written(const std::vector<at::Tensor>& parameters, Rule rule)
      : Optimizer({torch::optim::OptimizerParamGroup(parameters)},
                  std::make_unique<torch::optim::SGDOptions>(0.0)),
        rule_(std::move(rule)),
        states_(parameters.size()) {}
  at::Tensor step(LossClosure) override {
    const at::NoGradGuard no_grad;
    auto& parameters = param_groups()[0].params();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].grad().defined()) {
        RuleState& state = states_[i];
        const at::Tensor g = parameters[i].grad().to(at::kDouble);
        state.m = state.step == 0 ? at::zeros_like(g) : state.m;
        state.v = state.step == 0 ? at::zeros_like(g) : state.v;
        ++state.step;
        parameters[i].copy_(rule_(parameters[i].to(at::kDouble), g, state));
      }
    }
    return {};
  }

 private:
  Rule rule_;
  std::vector<RuleState> states_;
};

TorchOptimizer::Factory written(const Rule& rule) {
  return [rule](std::vector<at::Tensor> parameters) {
    return std::make_unique<Written>(std::move(parameters), rule);
  };
}

TEST(OptimizersOfRanks, EveryFusedOptimizerIsLibTorchsOnTheJoinedBatch) {
  using namespace torch::optim;
  expect_libtorchs_weights(lockstep::AdamW(0.01).weight_decay(0.1),
                           factory<torch::optim::AdamW>(AdamWOptions(0.01).weight_decay(0.1)));
  expect_libtorchs_weights(lockstep::Adam(0.01).weight_decay(0.1),
                           factory<torch::optim::Adam>(AdamOptions(0.01).weight_decay(0.1)));
  expect_libtorchs_weights(
      lockstep::SGD(0.1).momentum(0.9).nesterov(true).weight_decay(0.01),
      factory<torch::optim::SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)));
  expect_libtorchs_weights(
      lockstep::SGD(0.1).momentum(0.8).dampening(0.3),
      factory<torch::optim::SGD>(SGDOptions(0.1).momentum(0.8).dampening(0.3)));
  expect_libtorchs_weights(lockstep::SGD(0.1), factory<torch::optim::SGD>(SGDOptions(0.1)));
}

TEST(OptimizersOfRanks, LambAndLionAreTheirFormulasOnTheJoinedBatch) {
  constexpr double lr = 0.01, decay = 0.1;
  expect_libtorchs_weights(
      LAMB(lr).weight_decay(decay),
      written([](const at::Tensor& w, const at::Tensor& g, RuleState& s) {
        s.m = 0.9 * s.m + 0.1 * g;
        s.v = 0.999 * s.v + 0.001 * g * g;
        const double correction1 = 1 - std::pow(0.9, s.step);
        const double correction2 = 1 - std::pow(0.999, s.step);
        const at::Tensor u = (s.m / correction1) / ((s.v / correction2).sqrt() + 1e-6) + decay * w;
        return w - lr * (w.norm() / u.norm()) * u;
      }));
  expect_libtorchs_weights(Lion(lr).weight_decay(decay),
                           written([](const at::Tensor& w, const at::Tensor& g, RuleState& s) {
                             const at::Tensor move = at::sign(0.9 * s.m + 0.1 * g);
                             s.m = 0.99 * s.m + 0.01 * g;
                             return w * (1 - lr * decay) - lr * move;
                           }));
}

}  // namespace
}  // namespace lockstep
