// What saves, loads, moves or replaces weights that the ranks of a node share.
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/runtime/evaluation_scopes.h>
#include <lockstep/runtime/learning_rate_finder.h>
#include <lockstep/runtime/trainer/impl/kept_training.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>

#include <optional>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "shared_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

using testing::Recipe;
using testing::SharedFolder;
using testing::TrainingRun;
using testing::WideRun;

/// A run of eight micro-batches, of which some may be run by a program before.
struct Ended {
  at::Tensor state;                             // as bytes: averages may be NaN
  std::map<std::string, std::string> snapshot;  // digests
};

Ended run_of_eight(const TrainerOptions& options, const std::string& folder, int64_t from = 0,
                   int64_t to = 8) {
  Recipe recipe;
  recipe.options = options;
  recipe.overflows = [](int64_t micro_batch) { return micro_batch == 2; };
  TrainingRun run(runtime(), recipe);
  run.trainer.resume(folder);
  run.done = from;
  run.train_to(to);
  run.trainer.save();
  run.trainer.finish_saving();
  return {at::cat({testing::flat(run.trainer.masters()), testing::flat(run.trainer.averaged())})
              .view(at::kByte),
          testing::digests(testing::step_path(folder, run.trainer.updates()))};
}

TEST(SharedWeights, SnapshotsAreThoseOfAShardedRunAndGoOnInAnyRun) {
  for (const Precision& level :
       {at_scale(Precision::O2(at::kBFloat16)), at_scale(Precision::O0())}) {
    const SharedFolder folder;
    const auto plain = TrainerOptions().precision(level).ema(0.9);
    const auto sharded = TrainerOptions(plain).shard_optimizer(true);
    const at::Tensor whole = run_of_eight(plain, folder.file("plain")).state;
    const auto one = run_of_eight(shared(plain), folder.file("shared"));
    EXPECT_TRUE(at::equal(one.state, whole)) << level.describe();
    EXPECT_EQ(one.snapshot, run_of_eight(sharded, folder.file("sharded")).snapshot);
    int runs = 0;
    for (const TrainerOptions& other : {plain, shared(plain)}) {
      const std::string there = folder.file("to" + std::to_string(++runs));
      run_of_eight(shared(plain), there, 0, 4);
      EXPECT_TRUE(at::equal(run_of_eight(other, there, 4).state, whole)) << level.describe();
      const std::string back = folder.file("from" + std::to_string(runs));
      run_of_eight(other, back, 0, 4);
      EXPECT_TRUE(at::equal(run_of_eight(shared(plain), back, 4).state, whole)) << level.describe();
    }
  }
}

TEST(SharedWeights, LoadedWeightsHaveTheBitsOfAPlainRun) {
  const SharedFolder folder;
  testing::save_each(folder.file("source"), 3);
  const auto trained = [&](const TrainerOptions& options, const snapshot::LoadOptions& load) {
    Recipe recipe;
    recipe.options = options;
    TrainingRun run(runtime(), recipe);
    run.train_to(2);
    run.trainer.load_weights(folder.file("source"), load);
    run.train_to(5);
    EXPECT_TRUE(run.trainer.replicas_agree());
    return at::cat({testing::flat(run.trainer.masters()), testing::flat(run.trainer.averaged())});
  };
  snapshot::LoadOptions without_weights;  // these keep what they have
  without_weights.match = snapshot::Match::partial;
  without_weights.name_in_source = [](const std::string& name) {
    return name.find("weight") == std::string::npos ? name : "";
  };
  for (const Precision& level : kinds_of_masters()) {
    for (const auto& load : {snapshot::LoadOptions(), without_weights}) {
      SCOPED_TRACE(level.describe());
      const auto options = TrainerOptions().precision(level).ema(0.9);
      const at::Tensor whole = trained(options, load);
      EXPECT_TRUE(at::equal(trained(TrainerOptions(options).shard_optimizer(true), load), whole));
      EXPECT_TRUE(at::equal(trained(shared(options), load), whole));
    }
  }
}

TEST(SharedWeights, AWriteIsAnErrorBeforeASnapshot) {
  if (runtime().size() == 1) {
    return;
  }
  const SharedFolder folder;
  WideRun run(shared());
  run.trainer.resume(folder.file("run"));
  run.train(2);
  run.trainer.save();
  const at::Tensor before = testing::flat(run.model->parameters());
  if (runtime().rank() == 0) {
    run.model->last.mutable_data_ptr<float>()[3] = 5.0F;
  }
  EXPECT_THAT(error_of([&] { run.trainer.save(); }), HasSubstr("weight last was written"));
  EXPECT_THAT(error_of([&] { run.trainer.load_weights(folder.file("run")); }),
              HasSubstr("weight last was written"));
  EXPECT_THAT(error_of([&] { run.trainer.adopt_weights(); }), HasSubstr("last"));
  EXPECT_TRUE(run.trainer.resume(folder.file("run")).resumed);
  EXPECT_TRUE(at::equal(testing::flat(run.model->parameters()), before));
  run.train(2);
  EXPECT_TRUE(run.trainer.replicas_agree());
}

TEST(SharedWeights, AveragesAreSwappedInAndBack) {
  for (const Precision& level :
       {at_scale(Precision::O2(at::kBFloat16)), at_scale(Precision::O0())}) {
    const auto trained = [&](const TrainerOptions& options) {
      at::manual_seed(5);
      const auto model = std::make_shared<testing::Mlp>(40);
      Trainer trainer(runtime(), model, AdamW(1e-2), options);
      at::Tensor averages;
      for (int64_t step = 0; step < 4; ++step) {
        trainer.step([&] { return testing::scaled_loss(*model, step); });
        const at::Tensor before = testing::flat(model->parameters());
        {
          const AveragedWeights averaged(trainer, *model);
          averages = testing::flat(model->parameters());
        }
        EXPECT_TRUE(at::equal(testing::flat(model->parameters()), before));
      }
      return at::cat({averages, testing::flat(model->parameters())});
    };
    const auto options = TrainerOptions().precision(level).ema(0.9);
    EXPECT_TRUE(at::equal(trained(shared(options)), trained(options))) << level.describe();
  }
}

TEST(SharedWeights, AFinderLeavesTheRunAsItWas) {
  const auto trained = [](bool searches) {
    Recipe recipe;
    recipe.options = shared(TrainerOptions().ema(0.9).accumulate(2));
    TrainingRun run(runtime(), recipe);
    run.train_to(4);
    if (searches) {
      static_cast<void>(find_learning_rate(
          run.trainer, run.loader,
          [&](auto& on_host) {
            const auto batch = run.trainer.to_device(on_host);
            return run.trainer.step([&] { return run.model->loss(batch.first, batch.second); });
          },
          LearningRateSearch().lowest(1e-3).updates(8)));
    }
    run.train_to(8);
    return testing::flat(run.trainer.masters());
  };
  EXPECT_TRUE(at::equal(trained(true), trained(false)));
}

/// Twelve layers of 64 KiB in fp32, each a bucket of its own.
struct Layers : torch::nn::Module {
  Layers() {
    for (int i = 0; i < 12; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(128, 128)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) {
      x = at::tanh(layer->forward(x));
    }
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};

TEST(ShardedStates, AreSavedResumedAndKeptWithoutAWholeCopyOnAnyRank) {
  const int64_t ranks = runtime().size();
  const int64_t bucket = 128 * 129 * 4;
  const int64_t state = 12 * bucket;  // of all masters, or averages
  for (const Precision& level :
       {at_scale(Precision::O2(at::kBFloat16)), at_scale(Precision::O2(at::kBFloat16).remainders()),
        at_scale(Precision::O3(at::kBFloat16)), at_scale(Precision::O0())}) {
    SCOPED_TRACE(level.describe());
    const SharedFolder folder;
    const auto options =
        shared(TrainerOptions()
                   .precision(level)
                   .ema(0.9)
                   .buckets(testing::small_buckets())
                   .snapshots(SnapshotOptions().folder(folder.file("run")).asynchronous(false)));
    const auto made = [&] {
      at::manual_seed(9);
      return std::make_shared<Layers>();
    };
    const auto model = made();
    Trainer trainer(runtime(), model, AdamW(1e-2), options);
    const auto step = [&](Trainer& each, Layers& layers) {
      const at::Tensor x = testing::drawn({2, 128}, static_cast<uint64_t>(runtime().rank()));
      each.step([&] { return Loss(layers.forward(x).to(at::kFloat).square().mean()); });
    };
    step(trainer, *model);
    const auto peak_of = [](const std::function<void()>& action) {
      const MemoryMeter meter;
      action();
      return meter.peak();
    };
    // What a rank writes of masters and averages, and a few buckets.
    EXPECT_LT(peak_of([&] { trainer.save(); }), 2 * state / ranks + 8 * bucket);
    const at::Tensor saved = testing::flat(trainer.masters()).clone();
    const at::Tensor saved_averages = testing::flat(trainer.averaged()).clone();
    const auto other = made();
    Trainer again(runtime(), other, AdamW(1e-2), options);
    EXPECT_LT(peak_of([&] { EXPECT_TRUE(again.resume().resumed); }), 6 * bucket);
    EXPECT_TRUE(at::equal(testing::flat(again.masters()), testing::flat(trainer.masters())));
    EXPECT_TRUE(at::equal(testing::flat(again.averaged()), testing::flat(trainer.averaged())));
    step(trainer, *model);
    step(again, *other);
    EXPECT_TRUE(at::equal(testing::flat(again.masters()), testing::flat(trainer.masters())));
    // Weights, masters, averages and two moments.
    std::optional<KeptTraining> copy;
    EXPECT_LT(peak_of([&] { copy.emplace(again.impl(), "a search"); }),
              5 * state / ranks + 6 * bucket);
    step(again, *other);
    EXPECT_LT(peak_of([&] { copy.reset(); }), 6 * bucket);
    EXPECT_TRUE(at::equal(testing::flat(again.masters()), testing::flat(trainer.masters())));
    EXPECT_TRUE(at::equal(testing::flat(other->parameters()), testing::flat(model->parameters())));
    step(trainer, *model);
    step(again, *other);
    EXPECT_TRUE(at::equal(testing::flat(again.masters()), testing::flat(trainer.masters())));
    EXPECT_LT(peak_of([&] { again.load_weights(folder.file("run")); }), 6 * bucket);
    EXPECT_TRUE(at::equal(testing::flat(again.masters()), saved));
    EXPECT_TRUE(at::equal(testing::flat(again.averaged()), saved_averages));
  }
}

TEST(SharedWeights, ThawedLayersHaveTheBitsOfAPlainRun) {
  const auto trained = [](const TrainerOptions& options) {
    at::manual_seed(5);
    const auto model = std::make_shared<testing::Mlp>(40);
    model->first->weight.set_requires_grad(false);
    Trainer trainer(runtime(), model, AdamW(1e-2), options);
    for (int64_t step = 0; step < 9; ++step) {
      if (step % 3 == 0) {
        model->first->weight.set_requires_grad(step == 3);
        trainer.adopt_trainable();
      }
      trainer.step([&] { return testing::scaled_loss(*model, step); });
    }
    EXPECT_TRUE(trainer.replicas_agree());
    return testing::flat(model->parameters());
  };
  for (const Precision& level : kinds_of_masters()) {
    const auto options = TrainerOptions().precision(level).ema(0.9).buckets(small_buckets());
    const at::Tensor plain = trained(options);
    EXPECT_TRUE(at::equal(trained(shared(options)), plain)) << level.describe();
  }
}

TEST(SharedWeights, ADiagnosisNamesTheSameAsInAPlainRun) {
  const auto diagnosed = [](const TrainerOptions& options) {
    at::manual_seed(5);
    const auto model = std::make_shared<testing::Mlp>(40);
    Trainer trainer(runtime(), model, AdamW(1e-2), options);
    for (int64_t step = 0; step < 3; ++step) {
      trainer.diagnose_next_overflow();
      trainer.step([&] {
        return testing::scaled_loss(*model, step, step == 1 ? testing::overflow_factor : 1.0F);
      });
    }
    return trainer.diagnosis();
  };
  const auto options = TrainerOptions().precision(testing::half_precision());
  const std::string found = diagnosed(shared(options));
  EXPECT_FALSE(found.empty());
  EXPECT_EQ(found, diagnosed(options));
}

}  // namespace
}  // namespace lockstep
