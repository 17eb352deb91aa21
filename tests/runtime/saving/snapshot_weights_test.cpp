// What a saved run gives another model, another precision or another optimizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>

#include <algorithm>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

TEST(LoadedWeights, ResumeOfAnotherModelListsEverythingAndLoadsNothing) {
  const SharedFolder folder;
  save_each(folder.file("run"), 1);
  const auto model = std::make_shared<testing::Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1).momentum(0.9));
  const at::Tensor before = flat_masters(trainer);
  const std::string error = error_of([&] { trainer.resume(folder.file("run")); });
  EXPECT_THAT(error, AllOf(HasSubstr("second.weight"), HasSubstr("norm.running_mean"),
                           HasSubstr("first.weight.momentum_buffer"), HasSubstr("exp_avg_sq"),
                           HasSubstr("saved with sizes [6, 4], wanted [8, 4]")));
  EXPECT_TRUE(at::equal(flat_masters(trainer), before));
  EXPECT_EQ(trainer.updates(), 0);
}

/// An Mlp whose layers are registered the other way round.
struct Reversed : torch::nn::Module {
  Reversed()
      : second(register_module("second", torch::nn::Linear(8, 2))),
        first(register_module("first", torch::nn::Linear(4, 8))) {
    to(testing::device());
  }
  torch::nn::Linear second;
  torch::nn::Linear first;
};

TEST(LoadedWeights, OrderOfRegistrationDoesNotMatterForWeightsAndMoments) {
  const SharedFolder folder;
  std::vector<std::pair<std::string, at::Tensor>> expected;
  {
    const auto model = std::make_shared<testing::Mlp>();
    Trainer trainer(runtime(), model, AdamW(1e-2));
    trainer.resume(folder.file("run"));
    for (int64_t step = 0; step < 3; ++step) {
      trainer.step([&] { return testing::scaled_loss(*model, step); });
    }
    trainer.save();
    trainer.finish_saving();
    for (const auto& [name, master] : trainer.masters()) {
      expected.emplace_back(name, master.clone());
    }
  }
  const auto model = std::make_shared<Reversed>();
  Trainer trainer(runtime(), model, AdamW(1e-2),
                  TrainerOptions().snapshots(SnapshotOptions().folder(folder.file("again"))));
  EXPECT_EQ(trainer.resume(folder.file("run")).update, 3);
  const auto masters = trainer.masters();
  for (const auto& [name, value] : expected) {
    const auto found = std::find_if(masters.begin(), masters.end(),
                                    [&](const auto& master) { return master.first == name; });
    ASSERT_NE(found, masters.end());
    EXPECT_TRUE(at::equal(found->second, value)) << name;
  }
  trainer.save();
  trainer.finish_saving();
  const auto saved = testing::digests(step_path(folder.file("run"), 3));
  for (const auto& [name, digest] : testing::digests(step_path(folder.file("again"), 3))) {
    if (name.find("optimizer/") == 0) {
      EXPECT_EQ(saved.at(name), digest) << name;
    }
  }
}

TEST(LoadedWeights, SnapshotLoadsIntoEveryPrecisionByValue) {
  const SharedFolder folder;
  save_each(folder.file("run"), 2);
  const Snapshot saved(step_path(folder.file("run"), 2));
  for (const Precision& precision :
       {Precision::O0(), testing::half_precision(), Precision::O2(at::kBFloat16),
        Precision::O3(at::kBFloat16), Precision::O3()}) {
    SCOPED_TRACE(precision.describe());
    const auto model = std::make_shared<testing::Awkward>();
    Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().precision(precision));
    EXPECT_THAT(trainer.load_weights(folder.file("run")).missing, IsEmpty());
    for (const auto& parameter : model->named_parameters()) {
      const at::Tensor value = saved.section("model").read(parameter.key()).to(testing::device());
      EXPECT_TRUE(at::equal(parameter.value(), value.to(parameter.value().scalar_type())))
          << parameter.key();
    }
  }
}

TEST(LoadedWeights, HalfWeightsAreWidenedAndIntegersRefused) {
  const SharedFolder folder;
  const auto model = std::make_shared<testing::Mlp>();
  Trainer trainer(runtime(), model, AdamW(1e-2));
  snapshot::NamedTensors half;
  for (const auto& parameter : model->named_parameters()) {
    half.emplace_back(parameter.key(), at::full_like(parameter.value(), 0.3).to(at::kHalf));
  }
  snapshot::NamedTensors whole = half;
  whole[0].second = whole[0].second.to(at::kInt);
  if (runtime().is_main()) {
    snapshot::save_safetensors(folder.file("half.safetensors"), half);
    snapshot::save_safetensors(folder.file("whole.safetensors"), whole);
  }
  meet();
  trainer.load_weights(folder.file("half.safetensors"));
  const at::Tensor widened = testing::full({}, 0.3, at::kHalf).to(at::kFloat);
  EXPECT_TRUE(at::equal(flat_masters(trainer), widened.expand_as(flat_masters(trainer))));
  EXPECT_THAT(error_of([&] { trainer.load_weights(folder.file("whole.safetensors")); }),
              AllOf(HasSubstr(half[0].first), HasSubstr("would change its values")));
}

TEST(LoadedWeights, LoadedWeightsReachMastersAndModelAlike) {
  const SharedFolder folder;
  save_each(folder.file("run"), 2);
  Recipe recipe;
  recipe.options.precision(testing::half_precision());
  TrainingRun run(runtime(), recipe);
  run.train_to(2);
  TrainingRun saved(runtime(), {});
  EXPECT_EQ(saved.trainer.resume(folder.file("run")).update, 2);
  run.trainer.load_weights(folder.file("run"));
  ASSERT_TRUE(is_cast_of_masters(*run.model, run.trainer));
  const at::Tensor loaded = flat_masters(run.trainer);
  EXPECT_TRUE(at::equal(loaded, flat_masters(saved.trainer)));
  run.train_to(3);
  EXPECT_TRUE(is_cast_of_masters(*run.model, run.trainer));
  EXPECT_LT(testing::relative_distance(flat_masters(run.trainer), loaded), 0.3)
      << "the next step took the load back";
}

TEST(LoadedWeights, PartialLoadTakesWhatFitsAndTellsTheRest) {
  const SharedFolder folder;
  save_each(folder.file("run"), 1);
  const auto model = std::make_shared<testing::Mlp>(6);  // first as in the snapshot, no others
  Trainer trainer(runtime(), model, AdamW(1e-2));
  snapshot::LoadOptions options;
  EXPECT_THAT(error_of([&] { trainer.load_weights(folder.file("run"), options); }),
              HasSubstr("second.weight"));
  options.match = snapshot::Match::partial;
  const auto report = trainer.load_weights(folder.file("run"), options);
  EXPECT_THAT(report.loaded, ::testing::ElementsAre("first.weight", "first.bias"));
  EXPECT_THAT(report.missing, SizeIs(2));
  EXPECT_THAT(report.unexpected, Contains("norm.running_mean"));
}

}  // namespace
}  // namespace lockstep
