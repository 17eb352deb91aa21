// Masters, averages and moments that stay in host memory (TrainerOptions::offload_states).
#include <lockstep/runtime/step/impl/training_storage.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>
#include <torch/optim/sgd.h>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "shared_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::Recipe;
using testing::SharedFolder;
using testing::TrainingRun;
using testing::WideRun;

TrainerOptions offloaded(const TrainerOptions& options = {}) {
  return TrainerOptions(options).offload_states(true);
}

testing::Outcome on_host(testing::Outcome outcome) {
  for (at::Tensor* each : {&outcome.masters, &outcome.weights, &outcome.averages}) {
    *each = each->cpu();
  }
  return outcome;
}

at::Tensor flat_on_host(const NamedTensors& tensors) {
  std::vector<at::Tensor> flats;
  for (const auto& [name, tensor] : tensors) {
    flats.push_back(tensor.cpu().to(at::kFloat).flatten());
  }
  return at::cat(flats);
}

void expect_same_bits(const OptimizerSpec& spec, const TrainerOptions& options,
                      const std::string& what) {
  expect_same(on_host(run(spec, offloaded(options), 5)), on_host(run(spec, options, 5)), what);
}

TEST(OffloadedStates, HaveTheBitsOfARunOnTheDevice) {
  for (const Precision& level : testing::levels()) {
    for (const bool shard : {false, true}) {
      const auto options = TrainerOptions()
                               .precision(level)
                               .shard_optimizer(shard)
                               .accumulate(2)
                               .clip_grad_norm(0.5)
                               .ema(0.9)
                               .schedule(WarmupCosine(3, 20))
                               .buckets(testing::small_buckets());
      const auto adamw = AdamW(1e-2).weight_decay(0.1).no_decay_on_norms_and_biases();
      expect_same_bits(adamw, options, level.describe() + (shard ? ", sharded" : ""));
    }
  }
}

TEST(OffloadedStates, HaveTheBitsOfARunOnTheDeviceForEveryOptimizer) {
  const auto options =
      TrainerOptions().precision(testing::half_precision()).buckets(testing::small_buckets());
  for (const auto& spec : std::vector<std::shared_ptr<OptimizerSpec>>{
           SGD(1e-2).momentum(0.9).clone(), Adam(1e-2).clone(), Lion(1e-3).clone(),
           LAMB(1e-2).clone(), AdamW(1e-2).moments(MomentFormat::bf16).clone()}) {
    expect_same_bits(*spec, options, spec->describe());
    expect_same_bits(*spec, TrainerOptions(options).unused(UnusedParameters::detect),
                     spec->describe() + ", unused parameters");
  }
}

TEST(OffloadedStates, AreInHostMemory) {
  const auto options = TrainerOptions().precision(at_scale(Precision::O2(at::kBFloat16))).ema(0.9);
  WideRun run(offloaded(options));
  run.train(2);
  for (const auto& [name, master] : run.trainer.masters()) {
    EXPECT_TRUE(master.is_cpu()) << name;
  }
  for (const auto& [name, average] : run.trainer.averaged()) {
    EXPECT_TRUE(average.is_cpu()) << name;
  }
  const Trainer::Memory memory = run.trainer.memory();
  EXPECT_GT(memory.masters, 0);
  EXPECT_EQ(memory.on_host, memory.masters + memory.moments + memory.averages);
  EXPECT_EQ(WideRun(options).trainer.memory().on_host, 0);
}

TEST(OffloadedStates, AWriteThroughTheParameterIsTakenOver) {
  for (const Precision& level : testing::kinds_of_masters()) {
    const auto trained = [&](const TrainerOptions& options) {
      WideRun run(options);
      run.train(2);
      {
        const at::NoGradGuard no_grad;
        run.model->last.fill_(0.75);
      }
      run.train(2);
      return testing::flat_masters(run.trainer).cpu();
    };
    const auto options = TrainerOptions().precision(level);
    EXPECT_TRUE(at::equal(trained(offloaded(options)), trained(options))) << level.describe();
  }
}

TEST(OffloadedStates, AHiddenWriteIsAnErrorBeforeASnapshot) {
  const SharedFolder folder;
  const auto options =
      TrainerOptions().precision(at_scale(Precision::O2(at::kBFloat16).remainders()));
  WideRun run(offloaded(options).snapshots(SnapshotOptions().folder(folder.file("first"))));
  run.train(1);
  run.model->last.data().fill_(0.75);
  EXPECT_NO_THROW(run.trainer.save());  // the remainders make no NaN of it
  run.trainer.finish_saving();
  WideRun with_masters(offloaded(TrainerOptions().precision(at_scale(Precision::O2(at::kBFloat16))))
                           .snapshots(SnapshotOptions().folder(folder.file("other"))));
  with_masters.train(1);
  with_masters.model->last.data().fill_(0.75);
  EXPECT_THAT(error_of([&] { with_masters.trainer.save(); }),
              HasSubstr("weight last has an element that is 0.75 in the model"));
}

TEST(OffloadedStates, SnapshotsGoOnInAnyRun) {
  for (const Precision& level : {at_scale(Precision::O2(at::kBFloat16)), at_scale(Precision::O0()),
                                 at_scale(Precision::O2(at::kBFloat16).remainders())}) {
    const SharedFolder folder;
    const auto run_of_eight = [&](const TrainerOptions& options, const std::string& name,
                                  int64_t from = 0, int64_t to = 8) {
      Recipe recipe;
      recipe.options = options;
      recipe.overflows = [](int64_t micro_batch) { return micro_batch == 2; };
      TrainingRun run(runtime(), recipe);
      run.trainer.resume(folder.file(name));
      run.done = from;
      run.train_to(to);
      run.trainer.save();
      run.trainer.finish_saving();
      return at::cat({flat_on_host(run.trainer.masters()), flat_on_host(run.trainer.averaged())})
          .view(at::kByte);  // averages may be NaN
    };
    const auto plain = TrainerOptions().precision(level).ema(0.9);
    const auto sharded = TrainerOptions(plain).shard_optimizer(true);
    const at::Tensor whole = run_of_eight(plain, "plain");
    int runs = 0;
    for (const TrainerOptions& other : {plain, sharded, offloaded(sharded)}) {
      const std::string there = "to" + std::to_string(++runs);
      run_of_eight(offloaded(plain), there, 0, 4);
      EXPECT_TRUE(at::equal(run_of_eight(other, there, 4), whole)) << level.describe();
      const std::string back = "from" + std::to_string(runs);
      run_of_eight(other, back, 0, 4);
      EXPECT_TRUE(at::equal(run_of_eight(offloaded(plain), back, 4), whole)) << level.describe();
    }
  }
}

TEST(OffloadedStates, ThawedLayersHaveTheBitsOfARunOnTheDevice) {
  for (const Precision& level : testing::kinds_of_masters()) {
    const auto trained = [&](const TrainerOptions& options) {
      at::manual_seed(3);
      const auto model = std::make_shared<testing::Wide>();
      model->last.set_requires_grad(false);
      Trainer trainer(runtime(), model, AdamW(1e-3), options);
      for (int64_t step = 0; step < 6; ++step) {
        if (step == 2 || step == 4) {
          model->last.set_requires_grad(step == 2);
          trainer.adopt_trainable();
        }
        trainer.step([&] { return Loss(model->loss(step)); });
      }
      return at::cat({flat_on_host(trainer.masters()), flat_on_host(trainer.averaged()),
                      model->last.detach().to(at::kFloat).flatten().cpu()});
    };
    const auto options = TrainerOptions().precision(level).ema(0.9);
    EXPECT_TRUE(at::equal(trained(offloaded(options)), trained(options))) << level.describe();
  }
}

TEST(OffloadedStates, AdoptedWeightsHaveTheBitsOfARunOnTheDevice) {
  for (const Precision& level : testing::kinds_of_masters()) {
    const auto trained = [&](const TrainerOptions& options) {
      WideRun run(options);
      run.train(2);
      run.model->last.data().fill_(0.75);
      run.trainer.adopt_weights();
      run.train(2);
      return testing::flat_masters(run.trainer).cpu();
    };
    const auto options = TrainerOptions().precision(level);
    EXPECT_TRUE(at::equal(trained(offloaded(options)), trained(options))) << level.describe();
  }
}

TEST(OffloadedStates, AFlippedBitOnOneRankIsNamed) {
  WideRun run(offloaded(TrainerOptions()
                            .precision(at_scale(Precision::O2(at::kBFloat16)))
                            .compare_replicas_every(1)));
  run.train(3);
  if (runtime().rank() == 1) {
    const at::Tensor& masters = run.trainer.impl().storage.arena().buckets().back().masters;
    masters.mutable_data_ptr<float>()[0] += 1.0F;
  }
  EXPECT_THAT(error_of([&] { run.train(6); }), HasSubstr("replicas have diverged"));
}

TEST(OffloadedStates, AreRefusedForATorchOptimizer) {
  const TorchOptimizer sgd([](std::vector<at::Tensor> masters) {
    return std::make_unique<torch::optim::SGD>(std::move(masters), 1e-2);
  });
  const auto model = std::make_shared<testing::Wide>();
  EXPECT_THAT(error_of([&] { Trainer trainer(runtime(), model, sgd, offloaded()); }),
              HasSubstr("offload_states: a TorchOptimizer updates where its state is"));
}

}  // namespace
}  // namespace lockstep
