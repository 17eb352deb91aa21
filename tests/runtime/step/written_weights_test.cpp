// Weights that the program writes itself, between steps and in forward, last at every precision, or
// the Trainer says so by name (pytorch#37246, WGAN's clipping, weight noise).
#include <lockstep/runtime/evaluation_scopes.h>
#include <lockstep/runtime/load_weights.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/kept_training.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "runtime/captured_runs.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

struct Setting {
  const char* name;
  TrainerOptions options;
  double tolerance;  // of a weight of about 0.3, against plain LibTorch in fp32
  bool has_own_masters = false;
};

const std::vector<Setting>& settings() {
  const Precision half = testing::half_precision();
  const Precision brain = Precision::O2(at::kBFloat16);
  static const std::vector<Setting> all = {
      {"O0", TrainerOptions(), 1e-6},
      {"O0 sharded", TrainerOptions().shard_optimizer(true), 1e-6},
      {"O1", TrainerOptions().precision(Precision::O1(at::kBFloat16)), 1e-2},
      {"O2 bf16", TrainerOptions().precision(brain), 2e-2, true},
      {"O2 fp16", TrainerOptions().precision(half), 5e-3, true},
      {"O2 bf16 sharded", TrainerOptions().precision(brain).shard_optimizer(true), 2e-2, true},
      {"O2 fp16 accumulated", TrainerOptions().precision(half).accumulate(2), 5e-3, true},
      {"O2 remainders", TrainerOptions().precision(brain.remainders()), 2e-2},
      {"O2 remainders sharded",
       TrainerOptions().precision(brain.remainders()).shard_optimizer(true), 2e-2},
      {"O2 of torch::optim", TrainerOptions().precision(brain), 2e-2, true},
      {"O2 averaged", TrainerOptions().precision(brain).ema(0.9), 2e-2, true}};
  return all;
}

std::shared_ptr<OptimizerSpec> descent(const Setting& setting, double rate) {
  if (std::string(setting.name) == "O2 of torch::optim") {
    return TorchOptimizer([rate](std::vector<at::Tensor> weights) {
             return std::make_unique<torch::optim::SGD>(std::move(weights), rate);
           })
        .clone();
  }
  return SGD(rate).clone();
}

/// What a program does to the weights of a model after update number `step`.
using Write = std::function<void(Mlp& model, int64_t step)>;

const std::vector<std::pair<const char*, Write>>& writes() {
  static const std::vector<std::pair<const char*, Write>> all = {
      {"clamp of all",
       [](Mlp& model, int64_t) {
         for (at::Tensor& weight : model.parameters()) {
           weight.clamp_(-0.25, 0.25);
         }
       }},
      {"rows of unit length",
       [](Mlp& model, int64_t) {
         at::Tensor& weight = model.second->weight;
         weight.div_(weight.to(at::kFloat).norm(2, 1, /*keepdim=*/true).to(weight.scalar_type()));
       }},
      {"copy into one parameter",
       [](Mlp& model, int64_t step) {
         model.second->bias.copy_(at::full({2}, 0.25 + 0.125 * static_cast<double>(step % 2)));
       }},
      {"one element through a view", [](Mlp& model, int64_t) { model.first->weight[3][1] = 0.5; }},
      {"zeros through detach()",
       [](Mlp& model, int64_t) { model.first->bias.detach().slice(0, 2, 5).zero_(); }},
      {"signed zeros",
       [](Mlp& model, int64_t) { model.second->weight.mul_(0).select(0, 1).mul_(-1); }},
      {"large values", [](Mlp& model, int64_t) { model.first->weight.select(0, 0).fill_(2048); }},
      {"out= of an operator",
       [](Mlp& model, int64_t) {
         at::Tensor& weight = model.second->weight;
         at::clamp_out(weight, weight.detach().clone(), -0.125, 0.125);
       }},
  };
  return all;
}

/// Plain LibTorch with DDP's semantics in this process, in fp32.
class Plain {
 public:
  explicit Plain(const Mlp& like) { copy_state(like, model); }
  void step(int64_t first, int64_t accumulate, double rate) {
    testing::clear_gradients(model);
    const double parts = static_cast<double>(runtime().size() * accumulate);
    for (int rank = 0; rank < runtime().size(); ++rank) {
      for (int64_t k = 0; k < accumulate; ++k) {
        const auto batch = mlp_batch(first + k, rank);
        (model.loss(batch.x, batch.y) / parts).backward();
      }
    }
    testing::descend(model, rate);
  }
  Mlp model;
};

double distance(const torch::nn::Module& ours, const torch::nn::Module& expected) {
  return (flat(ours.parameters()) - flat(expected.parameters())).abs().max().item<double>();
}

std::shared_ptr<Mlp> seeded() {
  at::manual_seed(5);
  return std::make_shared<Mlp>();
}

TEST(WrittenWeights, LastAsInPlainLibTorchAndReachTheSnapshot) {
  constexpr double kRate = 0.05;
  for (const Setting& setting : settings()) {
    for (const auto& [name, write] : writes()) {
      SCOPED_TRACE(c10::str(setting.name, ", ", name));
      const SharedFolder folder;
      const auto model = seeded();
      Plain plain(*model);
      Trainer trainer(
          runtime(), model, *descent(setting, kRate),
          TrainerOptions(setting.options)
              .snapshots(SnapshotOptions().folder(folder.file("run")).asynchronous(false)));
      const int64_t accumulate = setting.options.accumulate();
      for (int64_t step = 0; step < 6; ++step) {
        for (int64_t k = 0; k < accumulate; ++k) {
          trainer.step([&] { return scaled_loss(*model, step * accumulate + k); });
        }
        plain.step(step * accumulate, accumulate, kRate);
        const at::NoGradGuard no_grad;
        write(*model, step);
        write(plain.model, step);
      }
      EXPECT_LT(distance(*model, plain.model), setting.tolerance);
      trainer.save();
      EXPECT_TRUE(trainer.replicas_agree());
      EXPECT_TRUE(is_cast_of_masters(*model, trainer));
      const auto loaded = seeded();
      load_weights(loaded, folder.file("run"));
      for (size_t i = 0; i < 4; ++i) {
        const at::Tensor weight = model->parameters()[i].detach();
        EXPECT_TRUE(at::equal(loaded->parameters()[i].detach().to(weight.scalar_type()), weight));
      }
    }
  }
}

/// A write in forward is what this forward computes with, and the update goes on from it.
TEST(WrittenWeights, OfTheForwardAreWhatTheUpdateStartsFrom) {
  constexpr double kRate = 0.05;
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const auto model = seeded();
    Plain plain(*model);
    Trainer trainer(runtime(), model, *descent(setting, kRate), setting.options);
    const auto project = [](Mlp& each) {
      const at::NoGradGuard no_grad;
      each.first->weight.clamp_(-0.15, 0.15);
    };
    const int64_t accumulate = setting.options.accumulate();
    for (int64_t step = 0; step < 6; ++step) {
      for (int64_t k = 0; k < accumulate; ++k) {
        trainer.step([&] {
          project(*model);
          return scaled_loss(*model, step * accumulate + k);
        });
      }
      project(plain.model);
      plain.step(step * accumulate, accumulate, kRate);
    }
    EXPECT_LT(distance(*model, plain.model), setting.tolerance);
    EXPECT_TRUE(trainer.replicas_agree());
  }
}

/// Noise that is there for forward and backward and gone before the update.
TEST(WrittenWeights, ThatAreWrittenBackLeaveTheBitsOfEveryMaster) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const auto run = [&](bool writes) {
      const auto model = seeded();
      Trainer trainer(runtime(), model, *descent(setting, 1e-4), setting.options);
      for (int64_t step = 0; step < 8 * setting.options.accumulate(); ++step) {
        at::Tensor loss;
        {
          const amp::Autocast region = trainer.autocast();
          loss = scaled_loss(*model, step).tensor();
        }
        trainer.backward(loss);
        if (writes) {
          const at::NoGradGuard no_grad;
          const at::Tensor kept = model->first->weight.detach().clone();
          model->first->weight.add_(1.0);
          model->first->weight.copy_(kept);
          model->second->weight.clamp_(-5, 5);
        }
        if ((step + 1) % setting.options.accumulate() == 0) {
          trainer.update();
        }
      }
      return flat_masters(trainer);
    };
    EXPECT_TRUE(at::equal(run(true), run(false)));
  }
}

TEST(WrittenWeights, LeaveTheBitsOfOtherElementsOfTheirParameter) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const auto model = seeded();
    Trainer trainer(runtime(), model, *descent(setting, 1e-3), setting.options);
    for (int64_t k = 0; k < setting.options.accumulate(); ++k) {
      trainer.step([&] { return scaled_loss(*model, k); });
    }
    const at::Tensor expected = trainer.masters()[0].second.clone();
    {
      const at::NoGradGuard no_grad;
      model->first->weight[3][1] = 0.5;
    }
    const at::Tensor now = trainer.masters()[0].second;
    EXPECT_NEAR(now[3][1].item<double>(), 0.5, 1e-3);
    expected[3][1] = now[3][1];
    EXPECT_TRUE(at::equal(now, expected));
  }
}

TEST(WrittenWeights, AreInTheMastersAtOnceAndInALaterUpdateAfterASkippedOne) {
  for (const Setting& setting : settings()) {
    if (setting.options.accumulate() > 1) {
      continue;
    }
    SCOPED_TRACE(setting.name);
    const auto model = seeded();
    Trainer trainer(runtime(), model, *descent(setting, 1e-3), setting.options);
    trainer.step([&] { return scaled_loss(*model, 0); });
    {
      const at::NoGradGuard no_grad;
      model->second->bias.fill_(0.75);
    }
    EXPECT_TRUE(
        trainer.step([&] { return scaled_loss(*model, 1, testing::overflow_factor); }).skipped());
    EXPECT_TRUE(is_cast_of_masters(*model, trainer));
    trainer.step([&] { return scaled_loss(*model, 2); });
    EXPECT_NEAR(model->second->bias.detach().to(at::kFloat).mean().item<double>(), 0.75, 0.02);
  }
}

/// Writes that LibTorch does not count.
TEST(WrittenWeights, ThroughDataAreRefusedByNameOrLast) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const SharedFolder folder;
    const auto model = seeded();
    Trainer trainer(runtime(), model, *descent(setting, 0.1),
                    TrainerOptions(setting.options)
                        .compare_replicas_every(4)
                        .snapshots(SnapshotOptions().folder(folder.file("run"))));
    const auto window = [&](int64_t number) {
      for (int64_t k = 0; k < setting.options.accumulate(); ++k) {
        trainer.step([&] { return scaled_loss(*model, 2 * number + k); });
      }
    };
    const auto clamp = [&] { model->first->weight.data().clamp_(-0.1, 0.1); };
    if (!setting.has_own_masters) {
      for (int64_t number = 0; number < 5; ++number) {
        window(number);
        clamp();
      }
      EXPECT_TRUE(trainer.replicas_agree());
      EXPECT_TRUE(is_cast_of_masters(*model, trainer));
      continue;
    }
    const auto refused = AllOf(
        HasSubstr("weight first.weight has an element that is "), HasSubstr("in its fp32 master"),
        HasSubstr(
            "not through data() or a pointer, or call trainer.adopt_weights() on every rank"));
    window(0);
    clamp();
    EXPECT_FALSE(trainer.replicas_agree());
    EXPECT_THAT(error_of([&] { trainer.save(); }), refused);
    EXPECT_THAT(error_of([&] {
                  for (int64_t number = 1; number < 5; ++number) {
                    window(number);
                    clamp();
                  }
                }),
                refused);
    const int64_t updates = trainer.updates();
    trainer.adopt_weights();
    EXPECT_TRUE(trainer.replicas_agree());
    EXPECT_LT(flat(model->first->parameters()).abs().max().item<double>(), 0.6);
    window(6);
    trainer.save();
    EXPECT_EQ(trainer.updates(), updates + 1);
  }
}

TEST(WrittenWeights, ThroughDataOnceIntoALargeModelAreFoundBeforeTheNextUpdate) {
  for (const int64_t every : {0, 100}) {
    for (const int64_t element : {0, 33'000, 299'999}) {
      const auto model = std::make_shared<testing::OneWeight>(testing::ones({300'000}));
      Trainer trainer(
          runtime(), model, SGD(1e-3),
          TrainerOptions().precision(Precision::O2(at::kBFloat16)).compare_replicas_every(every));
      const auto step = [&] {
        trainer.step([&]() -> Loss { return model->weight.to(at::kFloat).mean(); });
      };
      step();
      model->weight.data()[element] = 2.0;
      EXPECT_THAT(error_of(step), HasSubstr("weight weight has an element that is 2 in the model "
                                            "and 1 in its fp32 master"));
      EXPECT_EQ(trainer.updates(), 1);
    }
  }
}

TEST(WrittenWeights, ThatDifferBetweenRanksAreSaidToBeTheProgramsOwn) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const auto model = seeded();
    Trainer trainer(runtime(), model, *descent(setting, 0.1),
                    TrainerOptions(setting.options).compare_replicas_every(2));
    const auto window = [&](int64_t number) {
      for (int64_t k = 0; k < setting.options.accumulate(); ++k) {
        trainer.step([&] { return scaled_loss(*model, 2 * number + k); });
        if (runtime().rank() == 1) {
          const at::NoGradGuard no_grad;
          model->second->bias.add_(0.5);
        }
      }
    };
    EXPECT_THAT(
        error_of([&] {
          for (int64_t number = 0; number < 6; ++number) {
            window(number);
          }
        }),
        AllOf(HasSubstr("replicas have diverged"), HasSubstr("first in second.bias"),
              HasSubstr("The program wrote into weight second.bias on rank 1, in forward "
                        "or between steps"),
              HasSubstr("commonest cause is max_norm"), HasSubstr("trainer.resume(folder)")));
    EXPECT_FALSE(trainer.replicas_agree());
    model->second->bias.data().zero_();
    trainer.adopt_weights();
    EXPECT_TRUE(trainer.replicas_agree());
  }
}

TEST(WrittenWeights, OfOtherParametersSurviveLoadFreezeRoundsAndTrials) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const auto model = seeded();
    Trainer trainer(runtime(), model, *descent(setting, 0.0), setting.options);
    const auto write = [&](double value) {
      const at::NoGradGuard no_grad;
      model->first->weight.fill_(value);
    };
    const auto expect = [&](double value) {
      EXPECT_TRUE(is_cast_of_masters(*model, trainer));
      EXPECT_TRUE(trainer.replicas_agree());
      EXPECT_NEAR(model->first->weight.detach().to(at::kFloat).mean().item<double>(), value, 1e-6);
    };
    write(0.5);
    EXPECT_TRUE(is_cast_of_masters(*model, trainer));
    write(0.25);
    model->second->bias.set_requires_grad(false);
    trainer.adopt_trainable();
    expect(0.25);
    write(0.125);
    trainer.adopt_weights();
    expect(0.125);
    write(0.375);
    {
      KeptTraining trials(trainer.impl(), "a test");
      trials.give_back();
    }
    expect(0.375);
  }
}

TEST(WrittenWeights, OfARoundAreInItsEnd) {
  for (const Precision& precision : {Precision::O0(), Precision::O2(at::kBFloat16)}) {
    const auto model = seeded();
    Trainer trainer(runtime(), model, SGD(1e-3),
                    TrainerOptions().precision(precision).local_updates(LocalUpdates(3)));
    for (int64_t step = 0; step < 4; ++step) {
      trainer.step([&] { return scaled_loss(*model, step); });
      const at::NoGradGuard no_grad;
      model->first->weight.fill_(0.5);
    }
    trainer.finish_round();
    EXPECT_TRUE(trainer.replicas_agree());
    EXPECT_TRUE(equal_on_all_ranks(model->first->weight));
    EXPECT_NEAR(model->first->weight.detach().to(at::kFloat).mean().item<double>(), 0.5, 0.01);
  }
}

/// They are there for a while only.
TEST(WrittenWeights, AreNotTheAveragesOfAnEvaluation) {
  const auto model = seeded();
  Trainer trainer(runtime(), model, SGD(0.1),
                  TrainerOptions().precision(Precision::O2(at::kBFloat16)).ema(0.5));
  for (int64_t step = 0; step < 3; ++step) {
    trainer.step([&] { return scaled_loss(*model, step); });
  }
  const at::Tensor before = flat_masters(trainer);
  {
    const AveragedWeights averaged(trainer, model);
    EXPECT_TRUE(trainer.replicas_agree());
    EXPECT_TRUE(at::equal(flat_masters(trainer), before));
  }
  EXPECT_TRUE(at::equal(flat_masters(trainer), before));
  EXPECT_TRUE(is_cast_of_masters(*model, trainer));
}

TEST(WrittenWeights, OfACapturedClosureAreRefusedAndThoseBetweenItsWindowsLast) {
  const auto model = seeded();
  testing::Calls calls;
  Trainer trainer(std::make_unique<TrainerImpl>(
      runtime(), model, SGD(1e-3),
      TrainerOptions().precision(Precision::O2(at::kBFloat16)).cuda_graph(true),
      HostActs::one_window_late, [&] { return std::make_unique<testing::KeptWork>(calls); },
      Communicator::solo()));
  bool projects = false;
  const auto step = [&] {
    const auto batch = mlp_batch(0, 0);
    trainer.step({batch.x, batch.y}, [&](const testing::Inputs& inputs) -> Loss {
      if (projects) {
        const at::NoGradGuard no_grad;
        model->first->weight.clamp_(-0.1, 0.1);
      }
      return model->loss(inputs[0], inputs[1]);
    });
    const at::NoGradGuard no_grad;
    model->second->bias.fill_(0.5);
  };
  for (int i = 0; i < 7; ++i) {
    step();
  }
  EXPECT_GT(calls.launches, 0);
  trainer.impl().storage.written().adopt();
  const auto masters = trainer.impl().storage.named(trainer.impl().storage.arena().whole_masters());
  EXPECT_TRUE(at::equal(masters[3].second, at::full({2}, 0.5)));
  projects = true;
  EXPECT_THAT(error_of([&] { step(); }),
              HasSubstr("the closure writes into weight first.weight, which its master cannot"));
}

}  // namespace
}  // namespace lockstep
