// Weights without a Trainer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/runtime/load_weights.h>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

snapshot::NamedTensors tensors_of(const torch::nn::Module& module) {
  snapshot::NamedTensors all;
  for (const auto& parameter : module.named_parameters()) {
    all.emplace_back(parameter.key(), parameter.value().detach().clone());
  }
  return all;
}

TEST(LoadWeights, OfARunAndOfASnapshot) {
  const SharedFolder folder;
  save_each(folder.file("run"), 2);
  const Snapshot saved(step_path(folder.file("run"), 2));
  for (const std::string& path : {folder.file("run"), folder.file("run/"), saved.path()}) {
    const auto model = std::make_shared<Awkward>();
    const auto report = load_weights(model, path);
    EXPECT_TRUE(report.is_complete()) << report.text();
    for (const auto& parameter : model->named_parameters()) {
      const at::Tensor value = saved.section("model").read(parameter.key());
      EXPECT_TRUE(at::equal(parameter.value(), value.to(testing::device()))) << parameter.key();
    }
    EXPECT_TRUE(at::equal(model->tied, model->middle->weight));
    EXPECT_EQ(model->norm->num_batches_tracked.item<int64_t>(), 2);
  }
}

TEST(LoadWeights, TakesTheMovingAveragesOfASnapshot) {
  const SharedFolder folder;
  for (const bool shards : {false, true}) {
    const std::string run = folder.file(shards ? "sharded" : "run");
    const auto trained = std::make_shared<Awkward>();
    Trainer trainer(runtime(), trained, AdamW(0.1),
                    TrainerOptions().ema(0.9).shard_optimizer(shards));
    for (const uint64_t i : {1, 2, 3}) {
      trainer.step([&] { return trained->loss(drawn({3, 4}, i), drawn({3, 2}, 9 + i)); });
    }
    snapshot::NamedTensors averages;
    for (const auto& [name, value] : trainer.averaged()) {
      averages.emplace_back(name, value.clone());
    }
    trainer.resume(run);
    trainer.save();
    trainer.finish_saving();
    snapshot::LoadOptions options;
    options.averaged = true;
    const auto model = std::make_shared<Awkward>();
    load_weights(model, run, options);
    const auto parameters = model->named_parameters();
    const auto buffers = model->named_buffers();
    for (const auto& [name, value] : averages) {
      const at::Tensor* parameter = parameters.find(name);
      const at::Tensor& loaded = parameter != nullptr ? *parameter : buffers[name];
      EXPECT_TRUE(at::equal(loaded, value.to(loaded.options()))) << name;
    }
    EXPECT_TRUE(at::equal(model->tied, model->middle->weight));
    EXPECT_FALSE(at::equal(model->middle->weight, trained->middle->weight));
    trainer.load_weights(run, options);
    EXPECT_TRUE(at::equal(trained->middle->weight, model->middle->weight));
  }
}

TEST(LoadWeights, WithoutMovingAveragesSaysSo) {
  const SharedFolder folder;
  save_each(folder.file("run"), 1);
  const auto model = std::make_shared<Awkward>();
  snapshot::LoadOptions options;
  options.averaged = true;
  EXPECT_THAT(error_of([&] { load_weights(model, folder.file("run"), options); }),
              HasSubstr("trained without TrainerOptions::ema"));
  const TemporaryFolder own;
  snapshot::save_safetensors(own.file("w.safetensors"), tensors_of(*model));
  EXPECT_THAT(error_of([&] { load_weights(model, own.file("w.safetensors"), options); }),
              HasSubstr("holds no moving averages; leave LoadOptions::averaged out"));
}

TEST(LoadWeights, IntoTheSameTensorsOfAnyType) {
  const TemporaryFolder folder;
  const auto saved = std::make_shared<Mlp>();
  snapshot::save_safetensors(folder.file("w.safetensors"), tensors_of(*saved));
  const auto model = std::make_shared<Mlp>();
  model->to(at::kBFloat16);
  const at::Tensor before = model->first->weight;
  load_weights(model, folder.file("w.safetensors"));
  EXPECT_TRUE(before.is_same(model->first->weight));
  EXPECT_TRUE(before.requires_grad());
  EXPECT_TRUE(at::equal(before, saved->first->weight.to(at::kBFloat16)));
}

TEST(LoadWeights, NothingIsLoadedUnlessAllFits) {
  const TemporaryFolder folder;
  const auto saved = std::make_shared<Mlp>(6);
  snapshot::NamedTensors tensors = tensors_of(*saved);
  tensors.emplace_back("third.weight", at::ones({2}));
  snapshot::save_safetensors(folder.file("w.safetensors"), tensors);
  const auto model = std::make_shared<Mlp>(8);
  const at::Tensor before = flat(tensors_of(*model));
  EXPECT_THAT(error_of([&] { load_weights(model, folder.file("w.safetensors")); }),
              AllOf(HasSubstr("third.weight"),
                    HasSubstr("first.weight: saved with sizes [6, 4], wanted [8, 4]")));
  EXPECT_TRUE(at::equal(flat(tensors_of(*model)), before));
  snapshot::LoadOptions options;
  options.match = snapshot::Match::partial;
  const auto report = load_weights(model, folder.file("w.safetensors"), options);
  EXPECT_THAT(report.loaded, ElementsAre("second.bias"));
  EXPECT_THAT(report.unexpected, ElementsAre("third.weight"));
  EXPECT_TRUE(at::equal(model->second->bias, saved->second->bias));
  EXPECT_THAT(error_of([&] { load_weights(model, folder.file("absent.safetensors")); }),
              HasSubstr("absent.safetensors"));
}

TEST(LoadWeights, NamesAreMappedAndMatricesTransposed) {
  const SharedFolder folder;
  at::manual_seed(3);  // the same on all ranks
  const auto saved = std::make_shared<Mlp>();
  snapshot::NamedTensors tensors;
  for (const auto& [name, value] : tensors_of(*saved)) {
    const bool is_matrix = name == "first.weight";
    tensors.emplace_back("model." + name, is_matrix ? value.t().contiguous() : value);
  }
  if (runtime().is_main()) {
    snapshot::save_safetensors(folder.file("w.safetensors"), tensors);
  }
  meet();
  const auto model = std::make_shared<Mlp>();
  snapshot::LoadOptions options;
  options.name_in_source = [](const std::string& name) { return "model." + name; };
  EXPECT_THAT(error_of([&] { load_weights(model, folder.file("w.safetensors"), options); }),
              HasSubstr("saved with sizes [4, 8], wanted [8, 4]"));
  options.transposed = [](const std::string& name) { return name.find("first") == 0; };
  EXPECT_THAT(load_weights(model, folder.file("w.safetensors"), options).misshapen, IsEmpty());
  EXPECT_TRUE(at::equal(flat(tensors_of(*model)), flat(tensors_of(*saved))));
  // A Trainer takes the same options.
  const auto trained = std::make_shared<Mlp>();
  Trainer trainer(runtime(), trained, SGD(0.1));
  trainer.load_weights(folder.file("w.safetensors"), options);
  EXPECT_TRUE(at::equal(trained->first->weight, saved->first->weight));
}

/// Weights that were saved by a program that wraps its model.
void save_wrapped(const SharedFolder& folder, const std::string& prefix) {
  if (runtime().is_main()) {
    snapshot::NamedTensors tensors;
    for (const auto& [name, value] : tensors_of(*std::make_shared<Mlp>())) {
      tensors.emplace_back(prefix + name, value);
    }
    snapshot::save_safetensors(folder.file("w.safetensors"), tensors);
  }
  meet();
}

TEST(LoadWeights, ThatMatchNothingAreAnErrorThatNamesThePrefix) {
  const SharedFolder folder;
  save_wrapped(folder, "module._orig_mod.");
  const auto model = std::make_shared<Mlp>();
  const auto trained = std::make_shared<Mlp>();
  Trainer trainer(runtime(), trained, SGD(0.1));
  const at::Tensor before = flat(tensors_of(*trained));
  snapshot::LoadOptions options;
  for (const snapshot::Match match : {snapshot::Match::strict, snapshot::Match::partial}) {
    options.match = match;
    for (const std::string& text :
         {error_of([&] { load_weights(model, folder.file("w.safetensors"), options); }),
          error_of([&] { trainer.load_weights(folder.file("w.safetensors"), options); })}) {
      EXPECT_THAT(text, AllOf(HasSubstr("nothing was loaded"), HasSubstr("name_in_source"),
                              HasSubstr("return \"module._orig_mod.\" + name;")));
    }
  }
  EXPECT_TRUE(at::equal(flat(tensors_of(*trained)), before));
  options.name_in_source = [](const std::string& name) { return "module._orig_mod." + name; };
  EXPECT_THAT(trainer.load_weights(folder.file("w.safetensors"), options).loaded,
              ::testing::SizeIs(4));
}

}  // namespace
}  // namespace lockstep
