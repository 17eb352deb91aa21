// A run that is saved and resumed, against the same run unbroken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <set>

#include "runtime/flat_tensors.h"
#include "runtime/snapshot_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// Trains `total` micro-batches at once, and again with the process "ended" after `first`; the last
/// snapshots must have the same digest for every tensor of every section.
void expect_bit_equal(const Recipe& recipe, int64_t first, int64_t total) {
  const SharedFolder folder;
  std::vector<double> losses;
  int64_t updates = 0;
  {
    TrainingRun unbroken(runtime(), recipe);
    ASSERT_FALSE(unbroken.trainer.resume(folder.file("unbroken")).resumed);
    unbroken.train_to(total);
    losses = unbroken.losses;
    updates = unbroken.trainer.updates();
    unbroken.trainer.save();
  }
  std::vector<double> broken_losses;
  {
    TrainingRun before(runtime(), recipe);
    before.trainer.resume(folder.file("broken"));
    before.train_to(first);
    before.trainer.save();
    broken_losses = before.losses;
  }
  at::manual_seed(987);
  {
    TrainingRun after(runtime(), recipe);
    const ResumeReport report = after.trainer.resume(folder.file("broken"));
    EXPECT_TRUE(report.resumed);
    EXPECT_THAT(report.notes, IsEmpty());
    after.done = first;
    after.train_to(total);
    broken_losses.insert(broken_losses.end(), after.losses.begin(), after.losses.end());
    EXPECT_EQ(after.trainer.updates(), updates);
    after.trainer.save();
  }
  EXPECT_EQ(broken_losses, losses);
  const auto expected = digests(step_path(folder.file("unbroken"), updates));
  EXPECT_GT(expected.size(), 40U);
  EXPECT_EQ(digests(step_path(folder.file("broken"), updates)), expected);
}

Precision small_scale(Precision precision) {
  return precision.loss_scale(amp::LossScalerOptions().init_scale(256).growth_interval(3));
}

TEST(ResumedRuns, ResumedRunEqualsTheUnbrokenOneBitForBit) {
  const SGD momentum = SGD(0.05).momentum(0.9).nesterov(true);
  for (const Precision& precision :
       {Precision::O0(), Precision::O0().wire(at::kHalf), small_scale(Precision::O1(at::kBFloat16)),
        small_scale(Precision::O2()), Precision::O2(at::kBFloat16), Precision::O3(at::kBFloat16)}) {
    SCOPED_TRACE(precision.describe());
    Recipe recipe;
    recipe.options.precision(precision).clip_grad_norm(0.5).schedule(WarmupCosine(3, 40));
    expect_bit_equal(recipe, 4, 9);
    recipe.optimizer = momentum.clone();
    recipe.options.accumulate(2);
    expect_bit_equal(recipe, 6, 12);
  }
}

TEST(ResumedRuns, TorchOptimizersGoOnBitForBit) {
  using Masters = std::vector<at::Tensor>;
  const auto adam = [](Masters masters) {
    return std::make_unique<torch::optim::Adam>(std::move(masters),
                                                torch::optim::AdamOptions(1e-2).amsgrad(true));
  };
  const auto adamw = [](Masters masters) {
    return std::make_unique<torch::optim::AdamW>(std::move(masters), 1e-2);
  };
  const auto sgd = [](Masters masters) {
    return std::make_unique<torch::optim::SGD>(std::move(masters),
                                               torch::optim::SGDOptions(0.05).momentum(0.9));
  };
  for (const TorchOptimizer& optimizer :
       {TorchOptimizer(adam), TorchOptimizer(adamw), TorchOptimizer(sgd)}) {
    Recipe recipe;
    recipe.optimizer = optimizer.clone();
    recipe.options.precision(small_scale(Precision::O2()));
    expect_bit_equal(recipe, 3, 6);
  }
}

TEST(ResumedRuns, MidEpochEachSampleIsUsedOnceAndInTheSameOrder) {
  const SharedFolder folder;
  Recipe recipe;
  const auto per_epoch = TrainingRun(runtime(), recipe).loader.batches_per_epoch();
  const int64_t cut = per_epoch + per_epoch / 2;
  TrainingRun unbroken(runtime(), recipe);
  unbroken.train_to(3 * per_epoch);
  std::vector<int64_t> seen;
  {
    TrainingRun before(runtime(), recipe);
    before.trainer.resume(folder.file("run"));
    before.train_to(cut);
    before.trainer.save();
    seen = before.seen;
  }
  TrainingRun after(runtime(), recipe);
  after.trainer.resume(folder.file("run"));
  EXPECT_EQ(after.loader.position().epoch, 1);
  after.done = cut;
  after.train_to(3 * per_epoch);
  seen.insert(seen.end(), after.seen.begin(), after.seen.end());
  EXPECT_EQ(seen, unbroken.seen);
  const size_t mine = seen.size() / 3;
  const std::set<int64_t> second(seen.begin() + mine, seen.begin() + 2 * mine);
  EXPECT_EQ(second.size(), mine) << "a sample was used twice in the epoch that was cut";
}

TEST(ResumedRuns, LoaderMadeAfterResumeGoesOnToo) {
  const SharedFolder folder;
  Recipe recipe;
  SamplerPosition saved;
  {
    TrainingRun before(runtime(), recipe);
    before.trainer.resume(folder.file("run"));
    before.train_to(5);
    before.trainer.save();
    saved = before.loader.position();
  }
  const auto model = std::make_shared<testing::Awkward>();
  Trainer trainer(runtime(), model, AdamW(1e-2));
  ASSERT_TRUE(trainer.resume(folder.file("run")).resumed);
  auto loader = runtime().loader(testing::Numbered{recipe.samples},
                                 LoaderOptions().batch_size(recipe.batch_size).shuffle(true));
  EXPECT_EQ(loader.position(), saved);
  EXPECT_NE(saved, SamplerPosition());
}

TEST(ResumedRuns, ScaleTrackersAndSkipCountsGoOn) {
  Recipe recipe;
  recipe.options.precision(
      small_scale(Precision::O2())
          .loss_scale(amp::LossScalerOptions::deepspeed().init_scale(256).growth_interval(3)));
  // The second of two skips lowers the scale, since it has not grown in between.
  recipe.overflows = [](int64_t micro_batch) {
    return micro_batch % 9 == 1 || micro_batch % 9 == 5;
  };
  for (const int64_t cut : {2, 3, 7, 12}) {  // after a skip, and with trackers half way
    expect_bit_equal(recipe, cut, 16);
  }
}

TEST(ResumedRuns, SnapshotHoldsMastersExactlyAndTheWholeScaler) {
  const SharedFolder folder;
  Recipe recipe;
  recipe.options.precision(small_scale(Precision::O2()));
  TrainingRun run(runtime(), recipe);
  run.trainer.resume(folder.file("run"));
  run.train_to(5);
  run.trainer.save();
  run.trainer.finish_saving();
  const Snapshot saved(step_path(folder.file("run"), 5));
  bool beyond_half = false;
  for (const auto& [name, master] : run.trainer.masters()) {
    const at::Tensor stored = saved.section("model").read(name).to(testing::device());
    EXPECT_EQ(stored.scalar_type(), at::kFloat) << name;
    EXPECT_TRUE(at::equal(stored, master)) << name;
    beyond_half = beyond_half || !at::equal(stored, stored.to(at::kHalf).to(at::kFloat));
  }
  EXPECT_TRUE(beyond_half) << "this model could not tell fp16 weights from masters";
  const amp::ScalerState state = run.trainer.scaler_state();
  const auto counters = saved.section("trainer");
  EXPECT_EQ(counters.read("scaler.scale").item<double>(), state.scale);
  EXPECT_EQ(counters.read("scaler.growth_tracker").item<int64_t>(), state.growth_tracker);
  EXPECT_EQ(counters.read("scaler.skipped").item<int64_t>(), state.skipped);
  EXPECT_EQ(counters.read("updates").item<int64_t>(), 5);
}

TEST(ResumedRuns, ResumedTrainerEqualsAnUnbrokenOneAfterOverflows) {
  Recipe recipe;
  recipe.options.precision(small_scale(Precision::O2()));
  recipe.overflows = [](int64_t micro_batch) { return micro_batch == 3 || micro_batch == 6; };
  expect_bit_equal(recipe, 5, 10);
}

TEST(ResumedRuns, ResumedRunsRoundAndAverageAlike) {
  const auto brain = small_scale(Precision::O2(at::kBFloat16).remainders());
  const auto random = small_scale(Precision::O3(at::kBFloat16).stochastic_rounding());
  for (const Precision& precision : {brain, random}) {
    for (const bool shard : {false, true}) {
      SCOPED_TRACE(precision.describe());
      Recipe recipe;
      recipe.optimizer = AdamW(1e-2).moments(MomentFormat::bf16).clone();
      recipe.options.precision(precision).ema(0.9).shard_optimizer(shard);
      recipe.overflows = [](int64_t micro_batch) { return micro_batch == 2; };
      expect_bit_equal(recipe, 4, 8);
    }
  }
}

TEST(Sharding, SnapshotsGoOnWhetherShardedOrNot) {
  for (const bool shard_first : {false, true}) {
    const SharedFolder folder;
    const auto recipe = [](bool shard) {
      Recipe result;
      result.optimizer = AdamW(1e-2).moments(MomentFormat::bf16).clone();
      result.options.precision(small_scale(Precision::O2())).ema(0.9).shard_optimizer(shard);
      return result;
    };
    const auto state = [](const TrainingRun& run) {
      // As bytes: a batch of one sample has no variance, and its average is NaN.
      return at::cat({testing::flat(run.trainer.masters()), testing::flat(run.trainer.averaged())})
          .view(at::kByte);
    };
    TrainingRun unbroken(runtime(), recipe(false));
    unbroken.train_to(8);
    {
      TrainingRun before(runtime(), recipe(shard_first));
      before.trainer.resume(folder.file("run"));
      before.train_to(4);
      before.trainer.save();
    }
    TrainingRun after(runtime(), recipe(!shard_first));
    EXPECT_TRUE(after.trainer.resume(folder.file("run")).resumed);
    after.done = 4;
    after.train_to(8);
    EXPECT_TRUE(at::equal(state(after), state(unbroken))) << shard_first;
  }
}

/// lockstep's and LibTorch's.
std::vector<std::shared_ptr<OptimizerSpec>> adamw_of_both() {
  const TorchOptimizer torch_adamw([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::AdamW>(std::move(masters), 1e-2);
  });
  return {AdamW(1e-2).clone(), torch_adamw.clone()};
}

/// Its weight lies in memory column by column.
struct Columns : torch::nn::Module {
  Columns() { weight = register_parameter("weight", testing::drawn_on_host({5, 3}, 4).t()); }
  at::Tensor loss() { return (weight.to(at::kFloat) * weight.to(at::kFloat)).sum() * 1e-3; }
  at::Tensor weight;
};

TEST(Sharding, MomentsInAnotherMemoryOrderKeepTheirBitsInASnapshot) {
  for (const std::shared_ptr<OptimizerSpec>& optimizer : adamw_of_both()) {
    for (const bool shard_first : {false, true}) {
      const SharedFolder folder;
      const auto train = [&](bool shard, int updates, const std::string& run) {
        const auto model = std::make_shared<Columns>();
        Trainer trainer(
            runtime(), model, *optimizer,
            TrainerOptions().precision(small_scale(Precision::O2())).shard_optimizer(shard));
        trainer.resume(folder.file(run));
        for (int i = 0; i < updates; ++i) {
          trainer.step([&] { return model->loss(); });
        }
        trainer.save();
        return testing::flat(trainer.masters());
      };
      const at::Tensor unbroken = train(false, 6, "whole");
      train(shard_first, 3, "broken");
      EXPECT_TRUE(at::equal(train(!shard_first, 3, "broken"), unbroken)) << shard_first;
    }
  }
}

/// `none` is a layer of no inputs: all of its weight's elements are none.
struct WithNone : torch::nn::Module {
  WithNone() {
    weight = register_parameter("weight", at::full({3, 5}, 0.5F));
    none = register_parameter("none", at::empty({3, 0}));
  }
  at::Tensor loss() { return (weight * weight).sum() + none.sum(); }
  at::Tensor weight, none;
};

TEST(Sharding, AParameterOfNoElementsGoesThroughASnapshot) {
  for (const std::shared_ptr<OptimizerSpec>& optimizer : adamw_of_both()) {
    for (const bool shard : {false, true}) {
      const SharedFolder folder;
      const auto train = [&](const std::shared_ptr<WithNone>& model, int updates) {
        Trainer trainer(
            runtime(), model, *optimizer,
            TrainerOptions().precision(small_scale(Precision::O2())).shard_optimizer(shard));
        const bool resumed = trainer.resume(folder.file("run")).resumed;
        for (int i = 0; i < updates; ++i) {
          trainer.step([&] { return model->loss(); });
        }
        trainer.save();
        return resumed;
      };
      const auto first = std::make_shared<WithNone>(), second = std::make_shared<WithNone>();
      EXPECT_FALSE(train(first, 2));
      EXPECT_TRUE(train(second, 0));
      EXPECT_TRUE(at::equal(second->weight, first->weight));
      EXPECT_EQ(second->none.sizes(), first->none.sizes());
    }
  }
}

}  // namespace
}  // namespace lockstep
