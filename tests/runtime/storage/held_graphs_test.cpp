// A graph that is older than a write of lockstep to the weights is refused, as after an update of
// torch::optim (pytorch#39141).
#include <ATen/ops/cat.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/runtime/evaluation_scopes.h>
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

struct Setting {
  const char* name;
  TrainerOptions options;
};

std::vector<Setting> settings() {
  return {
      {"O0", TrainerOptions()},
      {"O2", TrainerOptions().precision(Precision::O2(at::kBFloat16))},
      {"O2 with remainders", TrainerOptions().precision(Precision::O2(at::kBFloat16).remainders())},
      {"O3", TrainerOptions().precision(Precision::O3(at::kBFloat16))},
      {"sharded", TrainerOptions().shard_optimizer(true)},
      {"reproducible", TrainerOptions().reproducible(true)},
      {"unused", TrainerOptions().unused(UnusedParameters::detect)}};
}

/// A loss whose backward needs the weight of the second layer.
at::Tensor loss_now(Trainer& trainer, Mlp& model) {
  const amp::Autocast region = trainer.autocast();
  return scaled_loss(model, 0).tensor();
}

/// Whether LibTorch refuses the backward of the loss.
bool is_refused(const at::Tensor& loss) {
  try {
    loss.backward();
    return false;
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("modified by an inplace operation"));
    return true;
  }
}

void step_once(Trainer& trainer, Mlp& model) {
  trainer.step([&] { return scaled_loss(model, 1); });
}

TEST(HeldGraphs, AreRefusedAfterAnUpdate) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, AdamW(0.1), setting.options);
    const at::Tensor before = loss_now(trainer, *model);
    step_once(trainer, *model);
    const at::Tensor after = loss_now(trainer, *model);
    EXPECT_TRUE(is_refused(before));
    EXPECT_FALSE(is_refused(after));
  }
}

TEST(HeldGraphs, AreRefusedAfterAnUpdateOfATorchOptimizer) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, TorchOptimizer([](std::vector<at::Tensor> weights) {
                    return std::make_unique<torch::optim::SGD>(std::move(weights), 0.1);
                  }));
  const at::Tensor before = loss_now(trainer, *model);
  step_once(trainer, *model);
  EXPECT_TRUE(is_refused(before));
}

TEST(HeldGraphs, AreRefusedAfterEachOtherCallThatWritesWeights) {
  const testing::SharedFolder folder;
  for (const Setting& setting : settings()) {
    const std::vector<std::pair<const char*, std::function<void(Trainer&, Mlp&)>>> writes = {
        {"resume", [&](Trainer& trainer, Mlp&) { trainer.resume(); }},
        {"load_weights",
         [&](Trainer& trainer, Mlp&) { trainer.load_weights(trainer.resume().path); }},
        {"adopt_weights", [](Trainer& trainer, Mlp&) { trainer.adopt_weights(); }},
        {"adopt_trainable", [](Trainer& trainer, Mlp& model) {
           model.first->weight.set_requires_grad(false);
           trainer.adopt_trainable();
         }}};
    for (const auto& [call, write] : writes) {
      SCOPED_TRACE(c10::str(setting.name, ", ", call));
      const std::string own = folder.file(c10::str(setting.name, " ", call));
      const auto model = std::make_shared<Mlp>();
      Trainer trainer(runtime(), model, SGD(0.1),
                      TrainerOptions(setting.options).snapshots(SnapshotOptions().folder(own)));
      step_once(trainer, *model);
      trainer.save();
      trainer.finish_saving();
      const at::Tensor before = loss_now(trainer, *model);
      write(trainer, *model);
      EXPECT_TRUE(is_refused(before));
      EXPECT_FALSE(is_refused(loss_now(trainer, *model)));
    }
  }
}

TEST(HeldGraphs, AreRefusedAfterTheEndOfARound) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().local_updates(LocalUpdates(8)));
  step_once(trainer, *model);
  const at::Tensor before = loss_now(trainer, *model);
  trainer.finish_round();
  EXPECT_TRUE(is_refused(before));
}

TEST(HeldGraphs, AreRefusedAfterAveragesWereSwappedIn) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().ema(0.9));
  step_once(trainer, *model);
  const at::Tensor before = loss_now(trainer, *model);
  { const AveragedWeights averaged(trainer, model); }
  EXPECT_TRUE(is_refused(before));
}

TEST(HeldGraphs, OutliveAnUpdateThatWasSkipped) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  step_once(trainer, *model);
  const at::Tensor before = loss_now(trainer, *model);
  const StepReport report =
      trainer.step([&] { return scaled_loss(*model, 1, testing::overflow_factor); });
  ASSERT_TRUE(report.skipped());
  EXPECT_FALSE(is_refused(before));
}

/// One forward for both losses of a GAN, whose discriminator is updated in between.
TEST(HeldGraphs, GivenToAStepAreAnErrorThatSaysSoOnEveryRank) {
  const auto generator = std::make_shared<Mlp>();
  const auto critic = std::make_shared<Mlp>();
  Trainer of_generator(runtime(), generator, SGD(0.1));
  Trainer of_critic(runtime(), critic, SGD(0.1));
  const auto widened = [](const at::Tensor& x) { return at::cat({x, x}, 1); };
  const at::Tensor score =
      critic->forward(widened(generator->forward(drawn({5, 4}, 3)))).square().mean();
  step_once(of_critic, *critic);
  EXPECT_THAT(error_of([&] { of_generator.step([&] { return score.neg(); }); }),
              HasSubstr("a part of this loss is older than the last update"));
  step_once(of_generator, *generator);
  EXPECT_TRUE(of_generator.replicas_agree());
}

TEST(HeldGraphs, ThatCarryAHiddenStateAreToldToDetachIt) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  at::Tensor hidden = at::ones({3, 2}, device());
  const auto next = [&] {
    trainer.step([&] {
      hidden = model->forward(at::cat({hidden, hidden}, 1));
      return hidden.square().mean();
    });
  };
  next();
  EXPECT_THAT(error_of(next), HasSubstr("detach() what one step carries to the next"));
}

TEST(HeldGraphs, AreRefusedByTheRecomputeOfACheckpoint) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  const at::Tensor before =
      checkpoint([model](const at::Tensor& x) { return model->forward(x); }, drawn({3, 4}, 3))
          .sum();
  step_once(trainer, *model);
  EXPECT_THROW(before.backward(), std::exception);
}

}  // namespace
}  // namespace lockstep
