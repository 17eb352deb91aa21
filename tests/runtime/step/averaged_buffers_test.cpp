// The moving averages of a model's buffers (TrainerOptions::ema).
#include <lockstep/checkpointing/snapshot/impl/writer.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/runtime/evaluate.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/kept_training.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <map>
#include <memory>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

constexpr double kDecay = 0.75;  // exact in binary, so that fused operations round alike

/// Running statistics, and buffers of another dtype, of another order in memory and without
/// elements, which forward changes.
struct Statistics : torch::nn::Module {
  Statistics()
      : first(register_module("first", torch::nn::Linear(4, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        last(register_module("last", torch::nn::Linear(8, 2))) {
    wide = register_buffer("wide", at::zeros({3}, at::kDouble));
    columns = register_buffer("columns", at::zeros({2, 3}).t());
    none = register_buffer("none", at::zeros({0}));
    to(testing::device());
  }
  at::Tensor loss(int64_t step) {
    const at::Tensor x = drawn({6, 4}, static_cast<uint64_t>(step * 64 + runtime().rank()));
    {
      const at::NoGradGuard no_grad;
      wide.add_(x.mean().to(wide.scalar_type()));
      columns.add_(1.0).mul_(0.5);
    }
    return last->forward(norm->forward(first->forward(x))).to(at::kFloat).square().mean();
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;
  at::Tensor wide, columns, none;
};

std::shared_ptr<Statistics> statistics() {
  at::manual_seed(5);
  return std::make_shared<Statistics>();
}

using Named = std::map<std::string, at::Tensor>;

bool is_wide(const at::Tensor& buffer) {
  return buffer.scalar_type() == at::kDouble && buffer.is_cpu();
}

/// The floating-point buffers, in the dtypes of their averages.
Named buffers_of(const torch::nn::Module& model) {
  Named buffers;
  for (const auto& buffer : model.named_buffers()) {
    if (buffer.value().is_floating_point()) {
      buffers[buffer.key()] =
          buffer.value().detach().to(is_wide(buffer.value()) ? at::kDouble : at::kFloat).clone();
    }
  }
  return buffers;
}

/// Of the floating-point buffers, as copies.
Named averages_of(const Trainer& trainer, const torch::nn::Module& model) {
  const Named buffers = buffers_of(model);
  Named averages;
  for (const auto& [name, average] : trainer.averaged()) {
    if (buffers.count(name) != 0) {
      averages[name] = average.clone();
    }
  }
  return averages;
}

/// One sample has no variance: NaN is as good as any number here.
at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.contiguous().view({-1}).view(at::kByte);
}

void expect_same(const Named& found, const Named& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, value] : expected) {
    EXPECT_EQ(found.at(name).scalar_type(), value.scalar_type()) << name;
    EXPECT_TRUE(at::equal(bytes_of(found.at(name)), bytes_of(value))) << name;
  }
}

/// torch.optim.swa_utils: lerp of each floating-point buffer.
void move(Named& averages, const torch::nn::Module& model) {
  for (const auto& [name, buffer] : buffers_of(model)) {
    averages[name].lerp_(buffer, 1.0 - kDecay);
  }
}

TEST(AveragedBuffers, FollowTheBuffersAtEachRealUpdate) {
  const TorchOptimizer torch_sgd([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::SGD>(std::move(masters), torch::optim::SGDOptions(0.1));
  });
  const TrainerOptions plain = TrainerOptions().ema(kDecay);
  std::vector<TrainerOptions> cases = {plain,
                                       TrainerOptions(plain).accumulate(2),
                                       TrainerOptions(plain).shard_optimizer(true),
                                       TrainerOptions(plain).buffers(BufferPolicy::average),
                                       TrainerOptions(plain).buffers(BufferPolicy::none),
                                       TrainerOptions(plain).precision(testing::half_precision())};
  if (testing::device().is_cpu()) {
    cases.push_back(TrainerOptions(plain).reproducible(true).accumulate(2));
  }
  for (const TrainerOptions& options : cases) {
    for (const auto& optimizer : {AdamW(1e-2).clone(), torch_sgd.clone()}) {
      SCOPED_TRACE(optimizer->describe() + ", " + options.describe());
      const auto model = statistics();
      Trainer trainer(runtime(), model, *optimizer, options);
      Named expected = buffers_of(*model);
      expect_same(averages_of(trainer, *model), expected);
      for (int64_t step = 0; step < 8; ++step) {
        const float factor = step == 5 ? testing::overflow_factor : 1.0F;
        const StepReport report = trainer.step([&] { return model->loss(step) * factor; });
        if (report.closes_update() && !report.skipped()) {
          move(expected, *model);
        }
      }
      const Named found = averages_of(trainer, *model);
      expect_same(found, expected);
      EXPECT_FALSE(at::equal(found.at("norm.running_var"), model->norm->running_var));
      for (const auto& [name, average] : found) {
        EXPECT_TRUE(options.buffers() == BufferPolicy::none || equal_on_all_ranks(average)) << name;
      }
    }
  }
}

TEST(AveragedBuffers, AreInTheModelWhileTheAveragedWeightsAre) {
  for (const Precision& precision : {Precision::O0(), testing::half_precision()}) {
    const auto model = statistics();
    Trainer trainer(runtime(), model, AdamW(1e-2),
                    TrainerOptions().ema(kDecay).precision(precision));
    for (int64_t step = 0; step < 3; ++step) {
      trainer.step([&] { return model->loss(step); });
    }
    const auto bits = [&] {
      std::vector<at::Tensor> all;
      for (const at::Tensor& buffer : model->buffers()) {
        all.push_back(buffer.clone());
      }
      return all;
    };
    const auto before = bits();
    {
      const AveragedWeights averaged(trainer, model);
      for (const auto& [name, average] : averages_of(trainer, *model)) {
        const at::Tensor buffer = model->named_buffers()[name];
        EXPECT_TRUE(at::equal(buffer, average.to(buffer.scalar_type()))) << name;
      }
      EXPECT_EQ(model->norm->num_batches_tracked.item<int64_t>(), 3);
      const amp::Autocast autocast = trainer.autocast();
      model->loss(9);  // in training mode
    }
    const auto after = bits();
    for (size_t i = 0; i < before.size(); ++i) {
      const bool counts = !before[i].is_floating_point();  // that forward counted
      EXPECT_TRUE(counts || at::equal(after[i], before[i])) << i;
    }
  }
}

TEST(AveragedBuffers, OfOtherMemoryGoOnAndOfOtherSizesStartAnew) {
  const auto model = statistics();
  Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().ema(kDecay));
  Named expected = buffers_of(*model);
  const auto step = [&](int64_t number) {
    trainer.step([&] { return model->loss(number); });
    move(expected, *model);
    expect_same(averages_of(trainer, *model), expected);
  };
  step(0);
  model->norm->running_mean.set_data(model->norm->running_mean.clone());
  step(1);
  model->wide.set_data(at::ones({5}, model->wide.options()));
  trainer.step([&] { return model->loss(2); });
  expected["wide"] = buffers_of(*model).at("wide");
  move(expected, *model);
  expect_same(averages_of(trainer, *model), expected);
  step(3);
}

TEST(AveragedBuffers, GoOnFromASnapshotBitForBit) {
  for (const bool sharded : {false, true}) {
    const SharedFolder folder;
    Recipe recipe;
    recipe.options.ema(0.9).shard_optimizer(sharded);
    recipe.overflows = [](int64_t micro_batch) { return micro_batch == 2; };
    Named halfway, expected;
    {
      TrainingRun unbroken(runtime(), recipe);
      unbroken.train_to(8);
      expected = averages_of(unbroken.trainer, *unbroken.model);
    }
    {
      TrainingRun before(runtime(), recipe);
      before.trainer.resume(folder.file("run"));
      before.train_to(4);
      halfway = averages_of(before.trainer, *before.model);
      before.trainer.save();
    }
    {
      TrainingRun resumed(runtime(), recipe);
      EXPECT_THAT(resumed.trainer.resume(folder.file("run")).notes, IsEmpty());
      expect_same(averages_of(resumed.trainer, *resumed.model), halfway);
      resumed.done = 4;
      resumed.train_to(8);
      expect_same(averages_of(resumed.trainer, *resumed.model), expected);
    }
    TrainingRun loaded(runtime(), recipe);
    loaded.trainer.load_weights(folder.file("run"));
    expect_same(averages_of(loaded.trainer, *loaded.model), halfway);
  }
}

/// Saves the run as it was done before buffers were averaged.
void save_without(TrainingRun& run, const std::string& folder) {
  TrainerImpl& trainer = run.trainer.impl();
  trainer.step->settle();
  const snapshot::Content content = trainer.saving->state().content();
  const Named averages = averages_of(run.trainer, *run.model);
  snapshot::Content older;
  for (const auto& [name, value] : content.texts()) {
    older.text(name, value);
  }
  for (const auto& [section, all] : content.sections()) {
    for (const auto& [name, tensor] : all.whole) {
      const bool is_average =
          name.size() > 4 && averages.count(name.substr(0, name.size() - 4)) != 0;
      if (section != "optimizer" || !is_average) {
        older.add(section, name, tensor);
      }
    }
    for (const auto& [name, stored] : all.tied) {
      for (const auto& [other, tensor] : all.whole) {
        if (other == stored) {
          older.add(section, name, tensor);
        }
      }
    }
    for (const auto& [name, tensor] : all.own) {
      older.add_own(section, name, tensor);
    }
  }
  snapshot::Writer(runtime().control(), folder).save(older, {run.trainer.updates(), 0});
}

TEST(AveragedBuffers, StartAtTheBuffersOfASnapshotWithoutThem) {
  const SharedFolder folder;
  Recipe recipe;
  recipe.options.ema(0.9);
  TrainingRun older(runtime(), recipe);
  older.train_to(4);
  save_without(older, folder.file("run"));
  TrainingRun resumed(runtime(), recipe);
  const ResumeReport report = resumed.trainer.resume(folder.file("run"));
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("averages of the buffers start at the buffers")));
  expect_same(averages_of(resumed.trainer, *resumed.model), buffers_of(*older.model));
  EXPECT_TRUE(
      at::equal(testing::flat_masters(resumed.trainer), testing::flat_masters(older.trainer)));
  EXPECT_TRUE(at::equal(resumed.trainer.averaged()[0].second, older.trainer.averaged()[0].second))
      << "of a weight";
  TrainingRun loaded(runtime(), recipe);
  loaded.train_to(1);
  ::testing::internal::CaptureStderr();
  loaded.trainer.load_weights(folder.file("run"));
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(printed.find("averages of the buffers start at the buffers") != std::string::npos,
            runtime().rank() == 0)
      << printed;
  expect_same(averages_of(loaded.trainer, *loaded.model), buffers_of(*older.model));
}

TEST(AveragedBuffers, StartAtTheBuffersThatWereLoadedWithWeights) {
  const testing::TemporaryFolder folder;
  snapshot::save_safetensors(
      folder.path() + "/some.safetensors",
      {{"norm.running_mean", at::full({8}, 0.5F)}, {"first.weight", at::ones({8, 4})}});
  const auto model = statistics();
  Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().ema(kDecay));
  trainer.step([&] { return model->loss(0); });
  Named expected = averages_of(trainer, *model);
  expected["norm.running_mean"].fill_(0.5);
  model->loss(1);  // ranks now have other statistics, as in the middle of a window
  trainer.load_weights(folder.path() + "/some.safetensors",
                       snapshot::LoadOptions{snapshot::Match::partial, {}, {}});
  expect_same(averages_of(trainer, *model), expected);
}

TEST(AveragedBuffers, AreGivenBackAfterTrials) {
  const auto model = statistics();
  Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().ema(kDecay));
  trainer.step([&] { return model->loss(0); });
  const Named before = averages_of(trainer, *model);
  KeptTraining kept(trainer.impl(), "a trial");
  trainer.step([&] { return model->loss(1); });
  kept.give_back();
  expect_same(averages_of(trainer, *model), before);
}

TEST(AveragedBuffers, StayWhenOtherParametersAreTrained) {
  const auto model = statistics();
  Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().ema(kDecay));
  trainer.step([&] { return model->loss(0); });
  Named expected = averages_of(trainer, *model);
  model->first->weight.set_requires_grad(false);
  trainer.adopt_trainable();
  expect_same(averages_of(trainer, *model), expected);
  trainer.step([&] { return model->loss(1); });
  move(expected, *model);
  expect_same(averages_of(trainer, *model), expected);
}

TEST(AveragedBuffers, CountAsMemoryOfAverages) {
  const auto model = statistics();
  const Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().ema(kDecay));
  int64_t bytes = 0;
  for (const auto& [name, average] : trainer.averaged()) {
    bytes += static_cast<int64_t>(average.nbytes());
  }
  EXPECT_GE(trainer.memory().averages, bytes);
}

TEST(AveragedBuffers, AFlippedBitOnOneRankIsNamed) {
  for (const BufferPolicy policy : {BufferPolicy::broadcast, BufferPolicy::none}) {
    const auto model = statistics();
    Trainer trainer(runtime(), model, AdamW(1e-2), TrainerOptions().ema(kDecay).buffers(policy));
    const auto step = [&] { trainer.step([&] { return model->loss(0); }); };
    step();
    EXPECT_TRUE(trainer.replicas_agree());
    for (auto& [name, average] : trainer.averaged()) {
      if (name == "norm.running_var" && runtime().rank() == 1) {
        average[3] += 1.0;
      }
    }
    EXPECT_EQ(trainer.replicas_agree(), policy == BufferPolicy::none);
    if (policy == BufferPolicy::broadcast) {
      EXPECT_THAT(error_of([&] { trainer.impl().storage.replicas().require_equal(); }),
                  HasSubstr("first in norm.running_var.ema"));
    }
  }
}

}  // namespace
}  // namespace lockstep
