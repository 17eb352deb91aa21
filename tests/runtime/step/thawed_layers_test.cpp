// Layers that are thawed or frozen while a Trainer runs: what stays is kept bit for bit.
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <stdexcept>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

/// A head that trains from the start, and a body that may join it.
struct FineTuned : torch::nn::Module {
  FineTuned()
      : body(register_module("body", torch::nn::Linear(4, 40))),
        norm(register_module("norm", torch::nn::BatchNorm1d(40))),
        head(register_module("head", torch::nn::Linear(40, 2))) {
    to(testing::device());
    thaw(false);
  }
  void thaw(bool trainable) {
    for (const at::Tensor& parameter : body->parameters()) {
      parameter.set_requires_grad(trainable);
    }
  }
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor h = normed(at::tanh(body->forward(x)));
    const at::Tensor kept = at::dropout(h, 0.2, /*train=*/true);
    return (head->forward(kept).to(at::kFloat) - y).square().mean();
  }
  at::Tensor normed(const at::Tensor& h) { return norm->forward(h.to(norm->weight.scalar_type())); }
  torch::nn::Linear body;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear head;
};

struct Tuning {
  explicit Tuning(const TrainerOptions& options, const OptimizerSpec& optimizer = AdamW(1e-2))
      : options(options),
        model((at::manual_seed(5), std::make_shared<FineTuned>())),
        trainer(runtime(), model, optimizer, options) {}

  /// `uses_body`: else the body gets no gradient even where it is trainable.
  void train_to(int64_t last, bool uses_body = true) {
    while (done < last * options.accumulate()) {
      const testing::Batch batch = testing::mlp_batch(done++, runtime().rank());
      const float factor = done == 3 && options.precision().wire_dtype() == at::kHalf
                               ? testing::overflow_factor
                               : 1.0F;
      trainer.step([&] {
        if (uses_body) {
          return model->loss(batch.x, batch.y) * factor;
        }
        const at::Tensor h = at::tanh(batch.x.repeat({1, 10}));
        const at::Tensor scores = model->head->forward(h).to(at::kFloat);
        const at::Tensor more = model->normed(h).to(at::kFloat).square().mean();
        return ((scores - batch.y).square().mean() + more) * factor;
      });
    }
  }
  void thaw(bool trainable) {
    model->thaw(trainable);
    trainer.adopt_trainable();
  }
  /// Masters of everything but the body.
  at::Tensor others() const {
    std::vector<std::pair<std::string, at::Tensor>> kept;
    for (const auto& entry : trainer.masters()) {
      if (entry.first.rfind("body", 0) != 0) {
        kept.push_back(entry);
      }
    }
    return flat(kept).clone();
  }
  TrainerOptions options;
  std::shared_ptr<FineTuned> model;
  Trainer trainer;
  int64_t done = 0;
};

Precision small_scale(Precision precision) {
  return precision.loss_scale(amp::LossScalerOptions().init_scale(256).growth_interval(3));
}

std::vector<Precision> precisions_to_thaw() {
  return {Precision::O0(), small_scale(Precision::O2()),
          small_scale(Precision::O2(at::kBFloat16).remainders()), Precision::O3(at::kBFloat16)};
}

TEST(ThawedLayers, ThawingKeepsMomentsMastersAndAveragesOfTheRest) {
  for (const Precision& precision : precisions_to_thaw()) {
    for (const bool shard : {false, true}) {
      for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::bf16}) {
        SCOPED_TRACE(c10::str(precision.describe(), shard ? " sharded" : ""));
        const SharedFolder folder;
        const auto saved_at_4 = [&](const std::string& name, bool thaws) {
          Tuning run(TrainerOptions().precision(precision).ema(0.9).shard_optimizer(shard),
                     AdamW(1e-2).moments(moments));
          run.trainer.resume(folder.file(name));
          run.train_to(5);
          if (thaws) {
            run.thaw(true);
          }
          EXPECT_TRUE(run.trainer.replicas_agree());
          run.trainer.save();
          return run.trainer.updates();
        };
        const int64_t update = saved_at_4("frozen", false);
        ASSERT_EQ(saved_at_4("thawed", true), update);
        const Snapshot frozen(step_path(folder.file("frozen"), update));
        const Snapshot thawed(step_path(folder.file("thawed"), update));
        for (const char* section : {"model", "optimizer", "trainer"}) {
          for (const std::string& name : frozen.section(section).names()) {
            at::Tensor expected = frozen.section(section).read(name);
            if (precision.level() == Precision::Level::O3 && section == std::string("model")) {
              // Without masters a layer that joins has the weights that the model computes with.
              expected = expected.to(at::kBFloat16).to(expected.scalar_type());
            }
            const at::Tensor found = thawed.section(section).read(name);
            EXPECT_TRUE(at::equal(found, expected)) << section << " " << name;
          }
        }
        EXPECT_GT(thawed.section("optimizer").names().size(),
                  frozen.section("optimizer").names().size());
      }
    }
  }
}

TEST(ThawedLayers, TheRestGoesOnAsIfNothingHadJoined) {
  const TorchOptimizer adam([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::Adam>(std::move(masters),
                                                torch::optim::AdamOptions(1e-2));
  });
  const std::vector<Precision> with_masters = {Precision::O0(), small_scale(Precision::O2())};
  const std::vector<std::pair<std::shared_ptr<OptimizerSpec>, std::vector<Precision>>> forms = {
      {AdamW(1e-2).clone(), precisions_to_thaw()},
      {SGD(0.05).momentum(0.9).clone(), precisions_to_thaw()},
      {adam.clone(), with_masters}};
  for (const auto& [optimizer, each] : forms) {
    for (const Precision& precision : each) {
      SCOPED_TRACE(c10::str(optimizer->describe(), " ", precision.describe()));
      const auto options =
          TrainerOptions().precision(precision).accumulate(2).unused(UnusedParameters::zeros);
      Tuning unbroken(options, *optimizer), thawed(options, *optimizer);
      unbroken.train_to(8, /*uses_body=*/false);
      thawed.train_to(4, /*uses_body=*/false);
      thawed.thaw(true);
      thawed.train_to(8, /*uses_body=*/false);
      EXPECT_TRUE(at::equal(thawed.others(), unbroken.others()));
      EXPECT_EQ(thawed.trainer.updates(), unbroken.trainer.updates());
      EXPECT_EQ(thawed.trainer.loss_scale(), unbroken.trainer.loss_scale());
    }
  }
}

TEST(ThawedLayers, LayersJoinAndLeaveAndOnlyTheTrainableMove) {
  for (const Precision& precision : precisions_to_thaw()) {
    SCOPED_TRACE(precision.describe());
    Tuning run(TrainerOptions().precision(precision));
    const auto body = [&] { return run.model->body->weight.detach().to(at::kFloat).clone(); };
    const at::Tensor start = body();
    run.train_to(4);
    EXPECT_TRUE(at::equal(body(), start));
    run.thaw(true);
    EXPECT_TRUE(at::equal(body(), start)) << "a layer that joins keeps its weight";
    run.train_to(8);
    EXPECT_FALSE(at::equal(body(), start));
    EXPECT_EQ(run.trainer.masters().size(), 6U);
    const at::Tensor trained = body();
    run.thaw(false);
    EXPECT_TRUE(at::equal(body(), trained)) << "a layer that leaves keeps its weight";
    run.train_to(12);
    EXPECT_TRUE(at::equal(body(), trained));
    EXPECT_EQ(run.trainer.masters().size(), 4U);
    EXPECT_TRUE(run.trainer.replicas_agree());
    run.trainer.adopt_trainable();  // nothing changed
  }
}

TEST(ThawedLayers, AForgottenCallIsAnErrorWhoseAdviceWorks) {
  Tuning run{TrainerOptions()};
  run.train_to(2);
  run.model->thaw(true);
  EXPECT_THAT(error_of([&] { run.train_to(3); }),
              AllOf(HasSubstr("body.weight"), HasSubstr("Trainer::adopt_trainable()")));
  run.trainer.adopt_trainable();
  run.train_to(4);
  EXPECT_EQ(run.trainer.updates(), 3);
}

TEST(ThawedLayers, RanksThatThawDifferentLayersAreAnErrorOnAll) {
  Tuning run{TrainerOptions()};
  run.train_to(1);
  if (runtime().rank() == runtime().size() - 1) {
    run.model->thaw(true);
  }
  if (runtime().size() == 1) {
    EXPECT_NO_THROW(run.trainer.adopt_trainable());
    return;
  }
  EXPECT_THAT(error_of([&] { run.trainer.adopt_trainable(); }),
              AllOf(HasSubstr("which parameters are trainable"), HasSubstr("body.weight")));
  run.model->thaw(true);
  run.trainer.adopt_trainable();
  run.train_to(2);
  EXPECT_EQ(run.trainer.updates(), 2);
}

TEST(ThawedLayers, SnapshotsAcrossAThawGoOnBitForBit) {
  for (const Precision& precision : precisions_to_thaw()) {
    for (const bool back : {false, true}) {
      SCOPED_TRACE(c10::str(precision.describe(), back ? ", frozen again" : ""));
      const SharedFolder folder;
      const auto options = TrainerOptions().precision(precision).ema(0.9);
      const auto begin = [&](Tuning& run) {
        run.train_to(3);
        run.thaw(true);
        run.train_to(5);
        run.thaw(!back);
        run.train_to(6);
      };
      int64_t update = 0;
      {
        Tuning unbroken(options);
        unbroken.trainer.resume(folder.file("unbroken"));
        begin(unbroken);
        unbroken.train_to(9);
        unbroken.trainer.save();
        update = unbroken.trainer.updates();
      }
      {
        Tuning before(options);
        before.trainer.resume(folder.file("broken"));
        begin(before);
        before.trainer.save();
      }
      Tuning after(options);
      if (back) {
        after.thaw(true);  // resume() freezes it
      }
      EXPECT_THAT(after.trainer.resume(folder.file("broken")).notes, IsEmpty());
      EXPECT_EQ(after.model->body->weight.requires_grad(), !back);
      after.done = 6;
      after.train_to(9);
      after.trainer.save();
      after.trainer.finish_saving();
      testing::meet();
      EXPECT_EQ(digests(step_path(folder.file("broken"), update)),
                digests(step_path(folder.file("unbroken"), update)));
    }
  }
}

template <typename Optimizer>
TorchOptimizer made_of() {
  return TorchOptimizer([](std::vector<at::Tensor> masters) {
    return std::make_unique<Optimizer>(std::move(masters), 1e-2);
  });
}

// torch::optim's Adagrad makes its states in its constructor only.
TEST(AdoptTrainable, EveryTorchOptimizerFreezesAndThaws) {
  namespace optim = torch::optim;
  for (const TorchOptimizer& optimizer :
       {made_of<optim::Adam>(), made_of<optim::AdamW>(), made_of<optim::SGD>(),
        made_of<optim::Adagrad>(), made_of<optim::RMSprop>()}) {
    for (const bool shard : {false, true}) {
      Tuning run(TrainerOptions().shard_optimizer(shard), optimizer);
      int64_t updates = 0;
      for (const bool thaw : {true, false, true}) {
        run.thaw(thaw);
        const at::Tensor body = run.model->body->weight.detach().clone();
        const at::Tensor head = run.model->head->weight.detach().clone();
        run.train_to(++updates);
        EXPECT_EQ(at::equal(run.model->body->weight, body), !thaw);
        EXPECT_FALSE(at::equal(run.model->head->weight, head));
        EXPECT_TRUE(run.trainer.replicas_agree());
      }
    }
  }
}

TEST(AdoptTrainable, KeepsARateThatWasEditedThroughTheOptimizer) {
  torch::optim::Optimizer* held = nullptr;
  const TorchOptimizer adam([&held](std::vector<at::Tensor> masters) {
    auto made =
        std::make_unique<torch::optim::Adam>(std::move(masters), torch::optim::AdamOptions(1e-2));
    held = made.get();
    return made;
  });
  Tuning run(TrainerOptions(), adam);
  run.train_to(1);
  held->param_groups()[0].options().set_lr(0.25);
  run.thaw(true);
  EXPECT_EQ(run.trainer.learning_rate(), 0.25);
  EXPECT_EQ(held->param_groups()[0].options().get_lr(), 0.25);  // of the new optimizer
}

/// Adam, whose factory throws on the last rank while `fails`.
TorchOptimizer failing_adam(const bool& fails) {
  return TorchOptimizer([&fails](std::vector<at::Tensor> masters) {
    if (fails && runtime().rank() == runtime().size() - 1) {
      throw std::runtime_error("no such setting: betta");
    }
    return std::make_unique<torch::optim::Adam>(std::move(masters),
                                                torch::optim::AdamOptions(1e-2));
  });
}

TEST(AdoptTrainable, AFactoryThatThrowsLeavesTheTrainerAsItWas) {
  for (const Precision& precision : {Precision::O0(), small_scale(Precision::O2())}) {
    SCOPED_TRACE(precision.describe());
    const auto options = TrainerOptions().precision(precision).accumulate(2).ema(0.9).unused(
        UnusedParameters::zeros);
    bool fails = false;
    const TorchOptimizer adam = failing_adam(fails);
    Tuning undisturbed(options, adam), run(options, adam);
    const auto both_train_to = [&](int64_t last) {
      undisturbed.train_to(last, /*uses_body=*/false);
      run.train_to(last, /*uses_body=*/false);
    };
    const auto expect_failure = [&](bool thaw) {
      fails = true;
      EXPECT_THAT(error_of([&] { run.thaw(thaw); }),
                  HasSubstr(c10::str("rank ", runtime().size() - 1, ": no such setting: betta")));
      fails = false;
    };
    both_train_to(3);
    expect_failure(true);
    EXPECT_TRUE(at::equal(flat(run.trainer.masters()), flat(undisturbed.trainer.masters())));
    run.model->thaw(false);
    both_train_to(5);
    undisturbed.thaw(true);
    expect_failure(true);
    run.trainer.adopt_trainable();
    both_train_to(7);
    expect_failure(false);
    run.model->thaw(true);
    both_train_to(9);
    EXPECT_TRUE(run.trainer.replicas_agree());
    EXPECT_EQ(run.trainer.updates(), undisturbed.trainer.updates());
    EXPECT_TRUE(at::equal(flat(run.trainer.masters()), flat(undisturbed.trainer.masters())));
    EXPECT_TRUE(at::equal(flat(run.trainer.averaged()), flat(undisturbed.trainer.averaged())));
  }
}

TEST(AdoptTrainable, AFactoryThatThrowsInAResumeLeavesWhatIsTrainable) {
  const SharedFolder folder;
  bool fails = false;
  const TorchOptimizer adam = failing_adam(fails);
  {
    Tuning saved(TrainerOptions(), adam);
    saved.trainer.resume(folder.file("run"));
    saved.train_to(1);
    saved.trainer.save();
  }
  testing::meet();
  Tuning run(TrainerOptions(), adam);
  run.thaw(true);
  fails = true;
  EXPECT_THAT(error_of([&] { run.trainer.resume(folder.file("run")); }),
              HasSubstr("no such setting: betta"));
  EXPECT_TRUE(run.model->body->weight.requires_grad());
  run.train_to(2);
  EXPECT_EQ(run.trainer.updates(), 2);
}

}  // namespace
}  // namespace lockstep
