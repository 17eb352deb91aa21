// MuonOptimizer in a Trainer, against torch.optim.Muon of the same LibTorch.
#include <lockstep/amp/muon_optimizer.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

using torch::optim::AdamWOptions;

/// The parameters of muon_python.py.
struct Parameters : torch::nn::Module {
  explicit Parameters(const snapshot::SafetensorsFile& file) {
    for (const char* name : {"in", "bias", "wide", "square", "head"}) {
      const std::string place = std::to_string(all.size());
      all.push_back(register_parameter(name, file.tensor("start." + place).clone()));
    }
  }
  /// Its gradients are those of a step of muon_python.py, which are the same on every rank.
  at::Tensor loss(const snapshot::SafetensorsFile& file, int64_t step) const {
    at::Tensor sum = at::zeros({});
    for (size_t i = 0; i < all.size(); ++i) {
      sum = sum + (all[i] * file.tensor(c10::str("gradient.", step, ".", i))).sum();
    }
    return sum;
  }
  std::vector<at::Tensor> all;
};

TEST(MuonRanks, HasTheBitsOfPythonsMuonAndAdamW) {
  const snapshot::SafetensorsFile python(LOCKSTEP_MUON_PYTHON);
  const std::vector<std::pair<std::string, MuonOptions>> variants = {
      {"default", MuonOptions(0.02)},
      {"plain", MuonOptions(0.01).nesterov(false).weight_decay(0.0).momentum(0.9)},
      {"rms", MuonOptions(1e-3).adjust_lr_fn("match_rms_adamw").ns_steps(3)},
      {"coefficients",
       MuonOptions(0.02).ns_coefficients(std::make_tuple(2.0, -1.5, 0.5)).eps(1e-5)}};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  for (const bool shard : {false, true}) {
    for (const auto& [name, options] : variants) {
      const auto model = std::make_shared<Parameters>(python);
      Trainer trainer(runtime(), model,
                      MuonOptimizer::of(model, options, AdamWOptions(3e-3), {"head"}),
                      TrainerOptions().shard_optimizer(shard));
      for (int64_t step = 0; step < 6; ++step) {
        trainer.step([&]() -> Loss { return model->loss(python, step); });
      }
      for (size_t i = 0; i < model->all.size(); ++i) {
        const at::Tensor expected = python.tensor(c10::str(name, ".", i));
        EXPECT_TRUE(at::equal(model->all[i], expected))
            << name << " " << i << " " << (model->all[i] - expected).abs().max();
      }
      EXPECT_TRUE(trainer.replicas_agree());
    }
  }
  at::set_num_threads(threads);
}

struct Trained {
  explicit Trained(const TrainerOptions& options = {})
      : model((at::manual_seed(11), std::make_shared<Mlp>())),
        trainer(runtime(), model,
                MuonOptimizer::of(model, MuonOptions(0.02), AdamWOptions(1e-2), {"second"}),
                options) {}
  void step() {
    trainer.step([&] { return scaled_loss(*model, trainer.updates()); });
  }
  std::shared_ptr<Mlp> model;
  Trainer trainer;
};

TEST(MuonRanks, ResumedRunEqualsTheUnbrokenOneBitForBit) {
  const std::vector<std::tuple<Precision, bool, bool>> ways = {
      {Precision::O0(), false, false},
      {Precision::O2(at::kBFloat16), false, false},
      {Precision::O2(at::kBFloat16), true, true},
      {Precision::O0(), true, false},
      {Precision::O0(), false, true}};
  for (const auto& [precision, sharded_before, sharded_after] : ways) {
    const SharedFolder folder;
    const auto options = TrainerOptions()
                             .precision(precision)
                             .shard_optimizer(sharded_before)
                             .snapshots(SnapshotOptions().folder(folder.file("run")));
    Trained unbroken(options);
    for (int i = 0; i < 3; ++i) {
      unbroken.step();
    }
    unbroken.trainer.save();
    unbroken.trainer.finish_saving();
    unbroken.step();
    unbroken.step();
    Trained resumed(TrainerOptions().precision(precision).shard_optimizer(sharded_after));
    const auto notes = resumed.trainer.resume(folder.file("run")).notes;
    EXPECT_EQ(notes.empty(), sharded_before == sharded_after);  // a note says what changed
    resumed.step();
    resumed.step();
    EXPECT_TRUE(at::equal(flat_masters(resumed.trainer), flat_masters(unbroken.trainer)));
  }
}

TEST(MuonRanks, ShardingDividesTheMasters) {
  const auto options = TrainerOptions().precision(Precision::O2(at::kBFloat16));
  const int64_t whole = Trained(options).trainer.memory().masters;
  const int64_t own =
      Trained(TrainerOptions(options).shard_optimizer(true)).trainer.memory().masters;
  at::Tensor sum = at::full({1}, own, at::kLong);
  Communicator control = runtime().control();
  control.all_reduce(sum).wait();
  EXPECT_LE(sum.item<int64_t>(), 2 * whole);  // with padding
  EXPECT_EQ(own<whole, runtime().size()> 1);
}

TEST(MuonRanks, GroupsHaveLearningRatesOfTheirOwn) {
  Trained run;
  EXPECT_EQ(run.trainer.learning_rate(0), 0.02);
  EXPECT_EQ(run.trainer.learning_rate(1), 1e-2);
  const at::Tensor bias = run.model->first->bias.detach().clone();
  const at::Tensor weight = run.model->first->weight.detach().clone();
  run.trainer.set_learning_rate(0.0, 1);
  run.step();
  EXPECT_TRUE(at::equal(run.model->first->bias, bias));
  EXPECT_FALSE(at::equal(run.model->first->weight, weight));
}

void expect_freezes_and_thaws(const TrainerOptions& options) {
  Trained run(options);
  run.step();
  const auto freeze = [&](bool matrices, bool rest) {
    for (const auto& parameter : run.model->named_parameters()) {
      const bool is_matrix = parameter.key() == "first.weight";
      parameter.value().set_requires_grad(is_matrix ? !matrices : !rest);
    }
    run.trainer.adopt_trainable();
  };
  for (const bool matrices : {false, true, false}) {
    freeze(matrices, !matrices);
    const at::Tensor matrix = run.model->first->weight.detach().clone();
    const at::Tensor bias = run.model->first->bias.detach().clone();
    run.step();
    EXPECT_EQ(at::equal(run.model->first->weight, matrix), matrices);
    EXPECT_EQ(at::equal(run.model->first->bias, bias), !matrices);
    EXPECT_EQ(run.trainer.learning_rate(0), 0.02);
    EXPECT_EQ(run.trainer.learning_rate(1), 1e-2);
    EXPECT_TRUE(run.trainer.replicas_agree());
  }
}

TEST(MuonRanks, AllMatricesOrAllOfTheRestMayBeFrozenAndThawed) {
  expect_freezes_and_thaws({});
  expect_freezes_and_thaws(TrainerOptions().shard_optimizer(true));
}

TEST(MuonRanks, AThawedMatrixHasItsMomentumWhereverItLies) {
  const auto weights_of = [](bool shard) {
    Trained run(TrainerOptions().shard_optimizer(shard));
    run.step();
    for (const bool trains : {false, true}) {
      run.model->first->bias.set_requires_grad(trains);
      run.trainer.adopt_trainable();
      run.step();
    }
    return flat_masters(run.trainer);
  };
  EXPECT_TRUE(at::equal(weights_of(true), weights_of(false)));
}

TEST(MuonRanks, RanksWithOtherNumbersOfThreadsAreRefused) {
  if (runtime().size() == 1) {
    return;
  }
  const int threads = at::get_num_threads();
  at::set_num_threads(1 + runtime().rank());
  const std::string refusal = error_of([] { Trained run; });
  at::set_num_threads(threads);
  EXPECT_THAT(refusal, HasSubstr("1 compute threads (OMP_NUM_THREADS)"));
  EXPECT_THAT(refusal, HasSubstr("Pass the same on every rank"));
}

TEST(MuonRanks, RefusesWhatItCannotTrain) {
  const auto model = std::make_shared<Mlp>();
  const auto refusal = [&](const MuonOptions& options, std::vector<std::string> rest = {},
                           AdamWOptions rest_options = AdamWOptions(1e-3)) {
    return error_of([&] {
      Trainer(runtime(), model, MuonOptimizer::of(model, options, rest_options, std::move(rest)));
    });
  };
  EXPECT_THAT(refusal(MuonOptions(-1)), HasSubstr("MuonOptions.lr must be >= 0, is -1"));
  EXPECT_THAT(refusal(MuonOptions(1).weight_decay(-1)), HasSubstr("weight_decay must be >= 0"));
  EXPECT_THAT(refusal(MuonOptions(1).momentum(-1)), HasSubstr("momentum must be >= 0"));
  EXPECT_THAT(refusal(MuonOptions(1).ns_steps(100)), HasSubstr("ns_steps must be >= 0 and < 100"));
  EXPECT_THAT(refusal(MuonOptions(1).adjust_lr_fn("none")), HasSubstr("is \"none\""));
  EXPECT_THAT(refusal(MuonOptions(1), {"third"}), HasSubstr("no parameter is named third"));
  EXPECT_THAT(refusal(MuonOptions(1), {"first", "second"}), HasSubstr("no parameter is a matrix"));
  EXPECT_THAT(refusal(MuonOptions(1), {}, AdamWOptions(1).amsgrad(true)), HasSubstr("amsgrad"));
  if (runtime().size() > 1) {
    const auto one =
        std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(64, 64).bias(false));
    const TorchOptimizer slices([](std::vector<at::Tensor> masters) {
      return std::make_unique<MuonOptimizer>(std::move(masters), MuonOptions(1),
                                             std::vector<at::Tensor>(), AdamWOptions(1));
    });
    EXPECT_THAT(
        error_of([&] { Trainer(runtime(), one, slices, TrainerOptions().shard_optimizer(true)); }),
        HasSubstr("make the optimizer with MuonOptimizer::of()"));
  }
  EXPECT_THAT(
      error_of([&] { MuonOptimizer({model->first->bias}, MuonOptions(), {}, AdamWOptions()); }),
      HasSubstr("is no matrix; pass it with the rest"));
}

}  // namespace
}  // namespace lockstep
